// The part that speaks to sumi: an engine, a model, one job at a time. Nothing here knows of windows, and nothing holds
// up a frame: what may take longer than a budget (starting the engine, opening and closing a model, asking what a
// picture would need) is done on a thread that has the engine meanwhile.
#ifndef GENERATOR_H
#define GENERATOR_H
#include "worker.h"
#include "xml_form.h"
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <sumi.h>
#include <utility>
#include <vector>

struct Pixels {
    int width = 0, height = 0, channel_count = 0;
    bool has_alpha = false;     // some pixels may be transparent; alpha is straight
    std::vector<uint8_t> bytes; // rows from the top without gaps
};
using SharedPixels = std::shared_ptr<const Pixels>;

struct Adapter; // a LoRA or LoKr that was read for the model that is open
using SharedAdapter = std::shared_ptr<const Adapter>;

struct AdapterUse {
    std::string path, name;
    float strength = 1.0f;
    SharedAdapter adapter; // nullptr: it is not read yet
};

struct AdapterNews {
    std::string path;
    SharedAdapter adapter; // nullptr: it cannot be used, and take_failure() says why
};

struct Control; // a control net that was read for the model that is open
using SharedControl = std::shared_ptr<const Control>;

struct ControlUse {
    std::string path, name; // "": none
    float strength = 1.0f, start = 0.0f, end = 1.0f;
    SharedPixels picture; // that the image follows
    SharedControl net;    // nullptr: it is not read yet
};

struct ControlNews {
    std::string path, failure; // failure: sentences; the net cannot be used then
    SharedControl net;
    float strength = 1.0f;     // the usual one
    bool is_unknown = false;   // the file is no control net: it may be a model
    bool takes_picture = true; // otherwise it only inpaints
};

struct Settings {
    std::string prompt, negative;
    std::shared_ptr<const XmlForm> xml; // that `prompt` was written from; nullptr: it was typed
    sumi_preset preset = SUMI_PRESET_MODEL;
    int width = 0, height = 0, step_count = 0;
    float guidance = 0.0f, guidance_off = 0.0f, strength = 0.0f; // guidance_off: the model's number for none
    sumi_solver solver = SUMI_SOLVER_EULER;
    float shift = 0.0f; // 0: the model's own schedule
    // At most one of the three is above 0; all 0: every step is computed whole.
    float step_cache = 0.0f, step_cache_db = 0.0f;
    int step_cache_every = 0;
    bool reuses_steps() const { return step_cache > 0.0f || step_cache_db > 0.0f || step_cache_every > 0; }
    uint64_t seed = 0;
    std::vector<AdapterUse> adapters;
    ControlUse control;
    SharedPixels start, mask;             // image to image, inpainting
    std::vector<SharedPixels> references; // of edit models: what the prompt speaks of
    // Where there are some and no picture to start from, the size is not width x height but follows from them.
    bool follows_references = false;
    bool has_size_of_references() const { return follows_references && !references.empty() && !start; }
};

struct Product {
    Settings settings;
    SharedPixels pixels; // nullptr at first when the GPU wrote it into a texture
    SharedPixels seen;   // the control picture as the net saw it; nullptr: there was none
    std::string model_name;
    std::string negative; // the one that was used, the model's own too; "" without guidance
    int noise = 0, guidance_rule = 0;
    float cfg_scale = 0.0f;    // settings.guidance on the scale of other tools
    double seconds = 0.0;      // on the clock
    bool has_alpha = false;    // some of its pixels may be transparent
    int reused_count = 0;      // of the network's evaluations, by the step cache
    float predicted_db = 0.0f; // that the picture keeps then; 0: not known
    std::string saved_path;    // "": it was not saved
    float stage_seconds[SUMI_STAGE_COUNT] = {};
};

struct GeneratorOptions {
    sumi_backend backend = SUMI_BACKEND_AUTO;
    int thread_count = 0; // 0: all cores but one, which draws the window
};

// The texture that the next picture goes to, imported; nullptr: it comes in host memory. Called by frame(), with the
// engine at hand.
using FindTexture = std::function<sumi_external*(int width, int height)>;

// With textures, frame() and the end want the OpenGL context current.
constexpr int PRESET_COUNT = SUMI_PRESET_LEAN + 1;

class Generator {
  public:
    Generator(const GeneratorOptions& options, FindTexture find_texture, void (*wake)());
    ~Generator(); // cancels; ends when the engine's slice does

    // Cancels the job, closes the model there is, and with it the adapters, which are to be read again.
    void open(const std::string& path);
    void read_adapter(const std::string& path); // as soon as a model is open; the answer is in take_adapters()
    void read_control(const std::string& path); // likewise, in take_control()
    void generate(const Settings& settings);
    void cancel();
    void ask_memory(const Settings& settings); // the answer is memory(), some frames later
    // Once per frame: works for about budget_us, takes notice of what has happened.
    void frame(uint32_t budget_us, double now);

    bool has_engine() const { return engine_ && !is_starting_; }
    bool is_opening() const { return is_opening_ || !wanted_path_.empty() || is_starting_; }
    bool is_generating() const { return job_.id != 0 || wanted_ != nullptr; }
    bool is_reading() const // adapters and control nets
    {
        return adapter_job_.id || control_job_.id || (model_ && !(wanted_adapters_.empty() && wanted_control_.empty()));
    }
    bool is_ready() const { return model_ != nullptr && !is_opening(); }
    const sumi_model_info& model_info() const { return model_info_; }
    // Draws a picture from a text, and takes no pictures to edit or can do without: models that are made for editing
    // alone have no size of their own in their presets.
    bool draws() const { return presets_[SUMI_PRESET_MODEL].width > 0; }
    const char* negative_text() const { return model_info_.negative_text ? model_info_.negative_text : ""; } // its own
    const std::string& model_path() const { return model_path_; }
    const std::string& model_name() const { return model_name_; }
    const Settings& running() const { return (running_ ? running_ : wanted_)->settings; } // while is_generating()
    bool can_tell_size() const { return model_ && !is_lent_; }
    // The size that the settings' picture will have; zero if the settings are refused, which the picture will be told.
    sumi_size size_of(const Settings& settings);
    // the preset's numbers for this model; all zero without one
    Settings defaults(sumi_preset preset) const;
    sumi_job_status status() const; // of the job at hand
    // on the clock, not of work; negative: not known
    double seconds_left(double now) const;
    double seconds_since_start(double now) const { return now - began_; }
    sumi_engine_info info() const;
    const sumi_memory& memory() const { return memory_; }
    double update_seconds() const { return update_seconds_; } // of the last frame
    bool is_on_gpu() const { return info().compute_capability > 0; }
    // For FindTexture. The texture goes after the engine, or after its sumi_external_release. On failure `why` is a
    // sentence.
    sumi_result import_texture(unsigned texture, int width, int height, sumi_external** external, std::string& why);

    // What has happened since they were last taken.
    std::shared_ptr<Product> take_product() { return std::move(product_); }
    SharedPixels take_preview() { return std::move(preview_); }
    std::string take_failure() { return std::exchange(failure_, std::string()); }
    std::vector<AdapterNews> take_adapters() { return std::exchange(adapter_news_, {}); }
    std::vector<ControlNews> take_control() { return std::exchange(control_news_, {}); }
    bool take_opened() { return std::exchange(was_opened_, false); }
    bool take_cancelled() { return std::exchange(was_cancelled_, false); }

  private:
    struct Request { // what a desc points to
        Settings settings;
        sumi_image_item item;
        sumi_pixels start, mask;
        std::vector<sumi_pixels> references;
        std::vector<sumi_lora_use> loras;
        sumi_pixels followed;
        sumi_control_picture control_picture;
        sumi_control_use control;
        sumi_target target;
        sumi_image_desc desc;
        std::shared_ptr<Pixels> picture;
    };
    std::shared_ptr<Request> make_request(const Settings& settings) const;
    void lend(std::function<void()> task, std::function<void()> then);
    void begin_open();
    void begin_generate();
    void look_at_job(double now);
    void begin_adapter();
    void look_at_adapter();
    void begin_control();
    void look_at_control();
    SharedPixels seen_by_control() const; // of a job that is done
    void release_unused();
    void end_job(const sumi_job_status& status, double now);
    std::string failure_text(const std::string& doing, sumi_result result, const char* message);
    void fail(const std::string& doing, sumi_result result, const char* message);
    std::string take_log();
    static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data);

    FindTexture find_texture_;
    std::mutex log_mutex_;
    std::string log_text_; // the last error's details
    sumi_engine* engine_ = nullptr;
    sumi_model* model_ = nullptr;
    sumi_model_info model_info_ = {};
    sumi_image_desc presets_[PRESET_COUNT] =
        {}; // of this model: asked for once, as the thread may have the engine later
    std::string model_path_, model_name_, wanted_path_;
    sumi_job job_ = {};
    std::atomic<uint64_t> load_{0}; // the id of the model's job: written on the thread, read here to cancel it
    std::shared_ptr<Request> running_, wanted_;
    std::shared_ptr<Settings> wanted_memory_;
    sumi_memory memory_ = {};
    sumi_job adapter_job_ = {};
    std::deque<std::string> wanted_adapters_; // the first one is being read when there is a job
    std::vector<AdapterNews> adapter_news_;
    sumi_job control_job_ = {};
    std::string wanted_control_, reading_control_; // the latter while there is a job
    std::vector<ControlNews> control_news_;
    struct Unused {
        std::mutex mutex; // the last user of an adapter may be on any thread
        std::vector<sumi_lora*> loras;
        std::vector<sumi_control*> controls;
    };
    std::shared_ptr<Unused> unused_ = std::make_shared<Unused>();
    std::shared_ptr<Product> product_;
    SharedPixels preview_;
    std::string failure_;
    uint32_t preview_version_ = 0;
    double began_ = 0.0, update_seconds_ = 0.0;
    bool is_starting_ = true, is_opening_ = false, is_lent_ = false, was_opened_ = false, was_cancelled_ = false;
    Worker worker_; // last, so that it ends first: its tasks use the members above
};
#endif
