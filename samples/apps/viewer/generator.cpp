#include "generator.h"
#include <algorithm>
#include <chrono>
#include <filesystem>
extern "C" {
#include "parameters.h"
}

struct Adapter {
    sumi_lora* lora;
};

struct Control {
    sumi_control* control;
};

static int default_thread_count()
{
    const unsigned cores = std::thread::hardware_concurrency();
    return cores > 2 ? (int)cores - 1 : 1;
}

Generator::Generator(const GeneratorOptions& options, FindTexture find_texture, void (*wake)())
    : find_texture_(std::move(find_texture)), worker_(wake)
{
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = options.backend;
    desc.cpu_thread_count = options.thread_count > 0 ? options.thread_count : default_thread_count();
    desc.log.write = write_log;
    desc.log.user_data = this;
    // The first use of a GPU's driver may take some hundred milliseconds: too long for the thread that draws.
    auto made = std::make_shared<std::pair<sumi_engine*, sumi_result>>(nullptr, SUMI_OK);
    worker_.post([desc, made] { made->second = sumi_engine_create(&desc, &made->first); },
                 [this, made] {
                     is_starting_ = false;
                     engine_ = made->first;
                     if (made->second != SUMI_OK) fail("Starting the engine", made->second, "");
                 });
}

Generator::~Generator()
{
    // Whatever the thread is doing with the engine comes to its end first. An engine that was just made is delivered
    // here.
    wanted_path_.clear();
    for (cancel(); !worker_.is_idle(); cancel()) {
        worker_.deliver();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    sumi_engine_destroy(engine_); // frees adapters too
}

void Generator::write_log(sumi_log_level level, sumi_result, const char* text, void* user_data)
{
    if (level != SUMI_LOG_ERROR) return;
    Generator* self = static_cast<Generator*>(user_data);
    std::lock_guard<std::mutex> lock(self->log_mutex_);
    self->log_text_ = text;
}

std::string Generator::take_log()
{
    std::lock_guard<std::mutex> lock(log_mutex_);
    return std::exchange(log_text_, std::string());
}

// Two sentences: what to do, and the details.
std::string Generator::failure_text(const std::string& doing, sumi_result result, const char* message)
{
    const std::string logged = take_log(), detail = message && *message ? message : logged;
    return doing + " failed: " + sumi_result_text(result) + (detail.empty() ? "" : "\n" + detail);
}

void Generator::fail(const std::string& doing, sumi_result result, const char* message)
{
    failure_ = failure_text(doing, result, message);
}

// While the thread has the engine, this one makes no call but those that are safe beside others (sumi.h, Threads).
void Generator::lend(std::function<void()> task, std::function<void()> then)
{
    is_lent_ = true;
    worker_.post(std::move(task), [this, then = std::move(then)] {
        is_lent_ = false;
        then();
    });
}

// ---- Models ---------------------------------------------------------------------------------------------------------

void Generator::open(const std::string& path)
{
    wanted_path_ = path;
    cancel();
}

void Generator::begin_open()
{
    std::string path = std::move(wanted_path_);
    wanted_path_.clear();
    is_opening_ = true;
    sumi_model* old = model_;
    model_ = nullptr;
    model_info_ = {};
    memory_ = {};
    wanted_adapters_.clear();
    wanted_control_.clear();
    struct Answer {
        sumi_result result = SUMI_OK;
        sumi_model* model = nullptr;
        std::string message, name;
    };
    auto answer = std::make_shared<Answer>();
    lend(
        [this, engine = engine_, old, path, answer] {
            sumi_model_close(old); // before the new one: both may not fit
            sumi_model_desc desc = sumi_model_defaults();
            desc.path = path.c_str();
            sumi_job job = {};
            answer->result = sumi_submit_model(engine, &desc, &job);
            if (answer->result != SUMI_OK) return;
            load_ = job.id;
            sumi_job_wait(engine, job, SUMI_FOREVER);
            answer->message = sumi_job_poll(engine, job).message;
            answer->result = sumi_fetch_model(engine, job, &answer->model);
            load_ = 0;
            std::filesystem::path name = path;
            if (!name.has_filename()) name = name.parent_path(); // "model/"
            std::error_code ignored;
            answer->name = (std::filesystem::is_regular_file(name, ignored) ? name.stem() : name.filename()).string();
        },
        [this, path, answer] {
            is_opening_ = false;
            if (answer->result != SUMI_OK) {
                if (wanted_path_.empty() && path != model_path_) wanted_path_ = model_path_; // back to what was open
                if (answer->result != SUMI_CANCELLED) fail("Opening " + path, answer->result, answer->message.c_str());
                return;
            }
            model_ = answer->model;
            model_info_ = sumi_model_get_info(model_);
            for (int i = 0; i < PRESET_COUNT; i++) presets_[i] = sumi_image_defaults(model_, (sumi_preset)i);
            model_path_ = path;
            model_name_ = answer->name;
            was_opened_ = true;
        });
}

Settings Generator::defaults(sumi_preset preset) const
{
    const sumi_image_desc& desc = presets_[preset];
    Settings settings;
    settings.preset = preset;
    settings.follows_references = model_info_.takes_references;
    settings.width = desc.width > 0 ? desc.width : model_info_.native_size;
    settings.height = desc.height > 0 ? desc.height : model_info_.native_size;
    settings.step_count = desc.step_count;
    settings.guidance = desc.guidance.scale;
    settings.guidance_off = model_info_.guidance_off;
    settings.strength = desc.start.strength;
    settings.solver = desc.solver;
    settings.shift = desc.shift;
    return settings;
}

sumi_engine_info Generator::info() const { return engine_ ? sumi_engine_get_info(engine_) : sumi_engine_info{}; }

// ---- Pictures -------------------------------------------------------------------------------------------------------

static sumi_pixels pixels_of(const Pixels& from)
{
    sumi_pixels to = {};
    to.data = from.bytes.data();
    to.width = from.width;
    to.height = from.height;
    to.channel_count = from.channel_count;
    return to;
}

std::shared_ptr<Generator::Request> Generator::make_request(const Settings& settings) const
{
    auto request = std::make_shared<Request>();
    request->settings = settings;
    const Settings& s = request->settings;
    request->item = {};
    request->item.text = s.prompt.c_str();
    request->item.negative_text = s.negative.empty() ? nullptr : s.negative.c_str();
    request->item.seed = s.seed;
    sumi_image_desc& desc = request->desc;
    desc = presets_[s.preset];
    desc.items = &request->item;
    desc.item_count = 1;
    desc.width = s.width;
    desc.height = s.height;
    desc.step_count = s.step_count;
    desc.guidance.scale = s.guidance;
    desc.solver = s.solver;
    desc.shift = s.shift;
    desc.step_cache = s.step_cache;
    desc.step_cache_db = s.step_cache_db;
    desc.step_cache_every = s.step_cache_every;
    desc.preview_every = 1;
    for (const AdapterUse& each : s.adapters)
        if (each.adapter) request->loras.push_back({each.adapter->lora, each.strength, 0.0f, false});
    desc.loras = request->loras.empty() ? nullptr : request->loras.data();
    desc.lora_count = (int32_t)request->loras.size();
    if (s.control.net && s.control.picture) {
        request->followed = pixels_of(*s.control.picture);
        request->control_picture = {};
        request->control_picture.picture = &request->followed;
        request->control = {s.control.net->control, &request->control_picture, 1,
                            s.control.strength,     s.control.start,           s.control.end};
        desc.controls = &request->control;
        desc.control_count = 1;
    }
    for (const SharedPixels& each : s.references) request->references.push_back(pixels_of(*each));
    desc.references = s.references.empty() ? nullptr : request->references.data();
    desc.reference_count = (int32_t)s.references.size();
    if (s.has_size_of_references()) desc.width = desc.height = 0;
    if (s.start) {
        request->start = pixels_of(*s.start);
        desc.start.image = &request->start;
        desc.start.strength = s.strength;
    }
    if (s.start && s.mask) {
        request->mask = pixels_of(*s.mask);
        desc.start.mask = &request->mask;
    }
    return request;
}

sumi_size Generator::size_of(const Settings& settings)
{
    sumi_size size = {};
    if (!can_tell_size()) return size;
    const std::shared_ptr<Request> request = make_request(settings);
    if (sumi_image_size(&request->desc, &size) == SUMI_OK) return size;
    take_log(); // of what is no failure yet
    return {};
}

void Generator::generate(const Settings& settings)
{
    if (is_generating() || !is_ready()) return;
    wanted_ = make_request(settings);
}

void Generator::begin_generate()
{
    running_ = std::move(wanted_);
    wanted_.reset();
    Settings& s = running_->settings;
    sumi_size size;
    if (const sumi_result result = sumi_image_size(&running_->desc, &size); result != SUMI_OK) {
        running_.reset();
        return fail("Starting the picture", result, "");
    }
    s.width = size.width; // where it follows from the references
    s.height = size.height;
    running_->target = {};
    running_->target.external = find_texture_(s.width, s.height);
    if (!running_->target.external) {
        auto picture = std::make_shared<Pixels>();
        picture->width = s.width;
        picture->height = s.height;
        picture->channel_count = 4;
        picture->has_alpha = model_info_.has_alpha;
        picture->bytes.resize((size_t)s.width * (size_t)s.height * 4);
        running_->target.host_memory = picture->bytes.data(); // the fetch writes there: no copy to make or release
        running_->picture = picture;
    }
    running_->desc.targets = &running_->target;
    preview_version_ = 0;
    preview_.reset();
    began_ = -1.0;
    job_ = {};
    const sumi_result result = sumi_submit_images(engine_, &running_->desc, &job_);
    if (result == SUMI_OK) return;
    job_ = {};
    running_.reset();
    fail("Starting the picture", result, "");
}

void Generator::cancel()
{
    wanted_.reset();
    if (engine_ && job_.id) sumi_job_cancel(engine_, job_);
    const sumi_job load = {load_};
    for (const sumi_job job : {adapter_job_, control_job_})
        if (engine_ && job.id && !wanted_path_.empty()) sumi_job_cancel(engine_, job);
    if (engine_ && load.id) sumi_job_cancel(engine_, load);
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

void Generator::read_adapter(const std::string& path) { wanted_adapters_.push_back(path); }

void Generator::begin_adapter()
{
    sumi_lora_desc desc = sumi_lora_defaults(model_);
    desc.path = wanted_adapters_.front().c_str();
    desc.priority = 1; // before pictures, of which some may wait for it
    const sumi_result result = sumi_submit_lora(engine_, &desc, &adapter_job_);
    if (result == SUMI_OK) return;
    adapter_job_ = {};
    fail("Reading " + wanted_adapters_.front(), result, "");
    adapter_news_.push_back({wanted_adapters_.front(), nullptr});
    wanted_adapters_.pop_front();
}

void Generator::look_at_adapter()
{
    const sumi_job_status status = sumi_job_poll(engine_, adapter_job_);
    if (status.state < SUMI_JOB_DONE && status.state != SUMI_JOB_NONE) return;
    const std::string message = status.message, path = wanted_adapters_.front();
    sumi_lora* lora = nullptr;
    const sumi_result result = sumi_fetch_lora(engine_, adapter_job_, &lora);
    adapter_job_ = {};
    wanted_adapters_.pop_front();
    AdapterNews news = {path, nullptr};
    // It is released where the engine is at hand.
    if (result == SUMI_OK)
        news.adapter = SharedAdapter(new Adapter{lora}, [unused = unused_](const Adapter* adapter) {
            std::lock_guard<std::mutex> lock(unused->mutex);
            unused->loras.push_back(adapter->lora);
            delete adapter;
        });
    else if (result != SUMI_CANCELLED) fail("Reading " + path, result, message.c_str());
    if (result == SUMI_CANCELLED) return; // another model is opened, for which it is read again
    adapter_news_.push_back(std::move(news));
}

// ---- Control nets ---------------------------------------------------------------------------------------------------

void Generator::read_control(const std::string& path) { wanted_control_ = path; }

void Generator::begin_control()
{
    reading_control_ = std::exchange(wanted_control_, std::string());
    sumi_control_desc desc = sumi_control_defaults(model_);
    desc.path = reading_control_.c_str();
    desc.priority = 1; // before pictures, which may wait for it
    const sumi_result result = sumi_submit_control(engine_, &desc, &control_job_);
    if (result == SUMI_OK) return;
    control_job_ = {};
    ControlNews news;
    news.path = reading_control_;
    news.failure = failure_text("Reading " + news.path, result, "");
    control_news_.push_back(news);
}

void Generator::look_at_control()
{
    const sumi_job_status status = sumi_job_poll(engine_, control_job_);
    if (status.state < SUMI_JOB_DONE && status.state != SUMI_JOB_NONE) return;
    const std::string message = status.message;
    sumi_control* control = nullptr;
    const sumi_result result = sumi_fetch_control(engine_, control_job_, &control);
    control_job_ = {};
    if (result == SUMI_CANCELLED) return; // another model is opened, for which it is read again
    ControlNews news;
    news.path = reading_control_;
    news.is_unknown = result == SUMI_MODEL_UNKNOWN;
    if (result == SUMI_OK) {
        const sumi_control_info info = sumi_control_get_info(control);
        news.strength = info.strength;
        news.takes_picture = info.takes_picture;
        news.net = SharedControl(new Control{control}, [unused = unused_](const Control* net) {
            std::lock_guard<std::mutex> lock(unused->mutex);
            unused->controls.push_back(net->control);
            delete net;
        });
    } else news.failure = failure_text("Reading " + news.path, result, message.c_str());
    control_news_.push_back(std::move(news));
}

SharedPixels Generator::seen_by_control() const
{
    if (running_->desc.control_count == 0) return nullptr;
    const Settings& s = running_->settings;
    const size_t count = (size_t)s.width * (size_t)s.height;
    std::vector<uint8_t> rgb(3 * count);
    sumi_control_view view = {};
    view.into = rgb.data();
    view.capacity = rgb.size();
    if (sumi_job_control_picture(engine_, job_, &view) != SUMI_OK) return nullptr; // no step was in its range
    auto seen = std::make_shared<Pixels>();
    seen->width = s.width;
    seen->height = s.height;
    seen->channel_count = 4;
    seen->bytes.assign(4 * count, 255);
    for (size_t i = 0; i < count; i++) std::copy_n(&rgb[3 * i], 3, &seen->bytes[4 * i]);
    return seen;
}

void Generator::release_unused()
{
    std::lock_guard<std::mutex> lock(unused_->mutex);
    for (sumi_lora* each : unused_->loras) sumi_lora_release(each);
    for (sumi_control* each : unused_->controls) sumi_control_release(each);
    unused_->loras.clear();
    unused_->controls.clear();
}

// ---- The job at hand ------------------------------------------------------------------------------------------------

void Generator::ask_memory(const Settings& settings) { wanted_memory_ = std::make_shared<Settings>(settings); }

sumi_job_status Generator::status() const
{
    const sumi_job job = job_.id ? job_ : sumi_job{load_};
    return engine_ && job.id ? sumi_job_poll(engine_, job) : sumi_job_status{};
}

// The library knows the work that is left. How long that takes depends on how much of each frame it is given, which is
// measured.
double Generator::seconds_left(double now) const
{
    const sumi_job_status now_status = status();
    double work = 0.0;
    for (float seconds : now_status.stage_seconds) work += (double)seconds;
    const double elapsed = now - began_;
    if (now_status.seconds_left < 0.0f || work <= 0.0 || elapsed <= 0.0) return -1.0;
    return (double)now_status.seconds_left * std::max(1.0, elapsed / work);
}

void Generator::end_job(const sumi_job_status& status, double now)
{
    const std::string message = status.message;
    sumi_image image = {};
    const SharedPixels seen = status.state == SUMI_JOB_DONE ? seen_by_control() : nullptr; // the fetch frees the job
    const sumi_result result = sumi_fetch_images(engine_, job_, &image, 1);
    sumi_job_discard(engine_, job_); // a texture that cannot be written leaves the job as it is
    job_ = {};
    if (result == SUMI_OK) {
        product_ = std::make_shared<Product>();
        product_->settings = running_->settings;
        for (AdapterUse& each : product_->settings.adapters) each.adapter.reset(); // the history keeps none in memory
        product_->settings.control.net.reset();
        product_->pixels = running_->picture;
        product_->seen = seen;
        product_->model_name = model_name_;
        const Settings& s = running_->settings;
        if (s.guidance > s.guidance_off) product_->negative = s.negative.empty() ? negative_text() : s.negative;
        product_->noise = (int)running_->desc.noise.source;
        product_->guidance_rule = (int)running_->desc.guidance.rule;
        product_->cfg_scale = parameters_cfg_scale(&model_info_, s.guidance);
        product_->seconds = now - began_;
        product_->has_alpha = image.has_alpha;
        product_->reused_count = (int)image.reused_count;
        product_->predicted_db = image.predicted_db;
        std::copy(std::begin(status.stage_seconds), std::end(status.stage_seconds), product_->stage_seconds);
    } else if (result == SUMI_CANCELLED) {
        was_cancelled_ = true;
    } else {
        fail("The picture", result, message.c_str());
    }
    running_.reset();
}

sumi_result Generator::import_texture(unsigned texture, int width, int height, sumi_external** external,
                                      std::string& why)
{
    // [excerpt gl_import]
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_GL_TEXTURE;
    desc.gl_name = texture;
    desc.gl_target = 0x0DE1; // GL_TEXTURE_2D
    desc.width = width;
    desc.height = height;
    const sumi_result result = sumi_import(engine_, &desc, external);
    // [end]
    if (result == SUMI_OK) return result;
    why = take_log();
    if (why.empty()) why = sumi_result_text(result);
    return result;
}

void Generator::look_at_job(double now)
{
    const sumi_job_status status = sumi_job_poll(engine_, job_);
    if (status.state >= SUMI_JOB_DONE || status.state == SUMI_JOB_NONE) return end_job(status, now);
    if (status.preview_version == preview_version_) return;
    auto preview = std::make_shared<Pixels>();
    preview->channel_count = 4;
    preview->bytes.resize((size_t)(running_->settings.width / 8) * (size_t)(running_->settings.height / 8) * 4);
    sumi_image image = {};
    if (sumi_job_preview(engine_, job_, 0, preview->bytes.data(), preview->bytes.size(), &image) != SUMI_OK) return;
    preview_version_ = status.preview_version;
    preview->width = image.width;
    preview->height = image.height;
    preview_ = preview;
}

void Generator::frame(uint32_t budget_us, double now)
{
    worker_.deliver();
    update_seconds_ = 0.0;
    if (!engine_ || is_lent_) return;
    if (!job_.id) release_unused(); // for which the engine would wait
    if (!wanted_path_.empty() && !job_.id && !adapter_job_.id && !control_job_.id) return begin_open();
    if (!wanted_adapters_.empty() && model_ && !adapter_job_.id && wanted_path_.empty()) begin_adapter();
    if (!wanted_control_.empty() && model_ && !control_job_.id && wanted_path_.empty()) begin_control();
    if (wanted_ && !job_.id) begin_generate();
    if (job_.id || adapter_job_.id || control_job_.id) {
        if (job_.id && began_ < 0.0) began_ = now;
        const auto begin = std::chrono::steady_clock::now();
        sumi_engine_update(engine_, budget_us);
        update_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (adapter_job_.id) look_at_adapter();
        if (control_job_.id) look_at_control();
        if (job_.id) look_at_job(now + update_seconds_);
        return;
    }
    if (wanted_memory_ && model_) {
        auto request = make_request(*wanted_memory_);
        wanted_memory_.reset();
        auto memory = std::make_shared<sumi_memory>();
        lend([engine = engine_, request, memory] { sumi_image_memory(engine, &request->desc, memory.get()); },
             [this, memory] { memory_ = *memory; });
    }
}
