// Paths at which there is no regular file: pipes, sockets, folders, links to nothing, devices. Whatever the library
// opens, each is refused at once, with a sentence that names the path.
#include "base/file.h"
#include "files/checkpoint.h"
#include "files_fixture.h"
#if defined(_WIN32)
#include <windows.h>
#include <winioctl.h>
#else
#if defined(__linux__)
#include <sys/inotify.h>
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#endif

// ---- Long paths -----------------------------------------------------------------------------------------------------
// What Windows' own functions take without a prefix is 260 characters long at most.

#if defined(_WIN32)
// Behind the prefix, which the library has to find out by itself.
static wchar_t* prefixed(const char* path)
{
    static wchar_t s_wide[4096];
    wcscpy(s_wide, L"\\\\?\\");
    CHECK(MultiByteToWideChar(CP_UTF8, 0, path, -1, s_wide + 4, 4000) > 0);
    for (wchar_t* at = s_wide; *at != 0; at++)
        if (*at == L'/') *at = L'\\';
    return s_wide;
}

static void make_folder(const char* path) { CHECK(CreateDirectoryW(prefixed(path), NULL)); }
static void remove_path(const char* path) { CHECK(DeleteFileW(prefixed(path)) || RemoveDirectoryW(prefixed(path))); }

static bool make_sparse_file(const char* path, uint64_t bytes)
{
    const HANDLE file = CreateFileW(prefixed(path), GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    DWORD written = 0;
    (void)DeviceIoControl(file, FSCTL_SET_SPARSE, NULL, 0, NULL, 0, &written, NULL); // Wine's files are so anyway
    const bool is_made = SetFilePointerEx(file, (LARGE_INTEGER){.QuadPart = (LONGLONG)bytes - 1}, NULL, FILE_BEGIN)
                      && WriteFile(file, "M", 1, &written, NULL) && written == 1;
    CloseHandle(file);
    return is_made;
}

static void make_file(const char* path)
{
    DWORD written;
    const HANDLE file = CreateFileW(prefixed(path), GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    CHECK(file != INVALID_HANDLE_VALUE && WriteFile(file, "{}", 2, &written, NULL));
    CloseHandle(file);
}
#else
static void make_folder(const char* path) { CHECK(mkdir(path, 0700) == 0); }
static void remove_path(const char* path) { CHECK(remove(path) == 0); }
static void make_file(const char* path) { write_file(path, "{}", 2); }
static bool make_sparse_file(const char* path, uint64_t bytes)
{
    FILE* file = fopen(path, "wb");
    const bool is_made = file != NULL && fseeko(file, (off_t)bytes - 1, SEEK_SET) == 0 && fputc('M', file) == 'M';
    return file != NULL && fclose(file) == 0 && is_made;
}
#endif

static void check_is_file(const char* path)
{
    sumi_file file;
    sumi_error error = {0};
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, path, &error), SUMI_OK);
    CHECK_NUMBER(file.bytes, 2);
    if (error.text[0] != 0) printf("  %s\n", error.text);
    sumi_file_close(&file);
}

TEST(paths_may_be_long)
{
    static const char s_level[] = "/a folder of sixty characters, as deep trees of assets have it";
    enum { LEVELS = 24, NAME_BYTES = 100 };
    char path[4000], other[4000 + NAME_BYTES];
    size_t ends[LEVELS + 1];
    snprintf(path, sizeof path, "%s", scratch("long", ""));
    ends[0] = strlen(path);
    for (int i = 0; i < LEVELS; i++) {
        snprintf(path + ends[i], sizeof path - ends[i], "%s", s_level);
        ends[i + 1] = strlen(path);
        make_folder(path);
        snprintf(other, sizeof other, "%s/file", path);
        make_file(other);
        CHECK(sumi_file_is_folder(NULL, path) && sumi_file_exists(NULL, other) && !sumi_file_is_folder(NULL, other));
        check_is_file(other);
        snprintf(other, sizeof other, "%s/nothing", path);
        CHECK(!sumi_file_exists(NULL, other));
        sumi_file file;
        sumi_error error = {0};
        CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, other, &error), SUMI_FILE_NOT_FOUND);
    }
    CHECK(ends[LEVELS] > 1400);
    snprintf(other, sizeof other, "%s/./../%s/file", path, s_level + 1); // as joined paths may be
    check_is_file(other);
    for (int i = LEVELS; i > 0; i--) {
        path[ends[i]] = 0;
        snprintf(other, sizeof other, "%s/file", path);
        remove_path(other);
        remove_path(path);
    }
}

// Names in the scripts of players' accounts and of asset stores; the last one has a character of two UTF-16 units.
TEST(names_may_be_in_any_script)
{
    static const char* const s_names[] = {"Модель", "模型 夜", "モデル", "модель\xcc\x88", "\xf0\x9f\x8e\xa8 art"};
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        char path[500];
        snprintf(path, sizeof path, "%s", scratch(s_names[i], ""));
        CHECK(sumi_file_is_folder(NULL, path));
        snprintf(path, sizeof path, "%s", scratch(s_names[i], s_names[i]));
        make_file(path);
        check_is_file(path);
        remove_path(path);
        CHECK(!sumi_file_exists(NULL, path));
    }
}

// As large as checkpoints are. The file has no blocks but the last one.
TEST(a_file_of_20_gigabytes_is_mapped)
{
    const uint64_t bytes = (uint64_t)20 << 30;
    char path[500];
    snprintf(path, sizeof path, "%s", scratch("large", "file"));
    if (!make_sparse_file(path, bytes)) {
        (void)system_remove(path);
        SKIP("the folder for scratch files does not take a sparse file of 20 GiB");
    }
    sumi_error error = {0};
    for (int i = 0; i < 3; i++) { // closed, it takes no addresses
        sumi_mapping mapping;
        CHECK_NUMBER(sumi_mapping_open(&mapping, path, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK(mapping.bytes == bytes);
        if (mapping.data != NULL) {
            const unsigned char* data = mapping.data;
            CHECK(data[0] == 0 && data[bytes / 2] == 0 && data[bytes - 1] == 77);
        }
        sumi_mapping_close(&mapping);
    }
    remove_path(path);
}

static void check_path_refused(const char* path, sumi_result wanted, const char* words)
{
    sumi_file file;
    sumi_error error = {0};
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, path, &error), wanted);
    CHECK(file.data == NULL && file.heap == NULL);
    if (strstr(error.text, words) == NULL || strstr(error.text, path) == NULL) {
        printf("  %s: no \"%s\" in \"%s\"\n", path, words, error.text);
        t_errors++;
    }
}

TEST(folders_and_devices_are_no_files)
{
    check_path_refused("tests", SUMI_FILE_READ_FAILED, "is a folder, not a regular file");
    CHECK(sumi_file_exists(NULL, "tests") && sumi_file_is_folder(NULL, "tests"));
    CHECK(!sumi_file_exists(NULL, "tests/nothing") && sumi_file_is_folder(NULL, "tests/nothing"));
    CHECK(sumi_file_exists(NULL, "tests/test.h") && !sumi_file_is_folder(NULL, "tests/test.h"));
#if defined(_WIN32)
    check_path_refused("NUL", SUMI_FILE_READ_FAILED, "is a device");
    check_path_refused("CON", SUMI_FILE_READ_FAILED, "");
#else
    check_path_refused("/dev/null", SUMI_FILE_READ_FAILED, "is a device, not a regular file");
    check_path_refused("/dev/tty", SUMI_FILE_READ_FAILED, "");
    CHECK(sumi_file_exists(NULL, "/dev/null") && !sumi_file_is_folder(NULL, "/dev/null"));
#endif
}

#if defined(_WIN32)
static HANDLE open_beside(const char* path, DWORD access, DWORD share)
{
    return CreateFileW(prefixed(path), access, share, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
}

// Another program writes the file, or reads it and lets nobody else.
TEST(files_in_use_are_refused_or_shared)
{
    char path[500];
    snprintf(path, sizeof path, "%s", scratch("use", "file"));
    make_file(path);
    static const struct {
        DWORD access, share;
        bool is_shared;
    } s_uses[] = {{GENERIC_READ, 0, false},
                  {GENERIC_WRITE, FILE_SHARE_READ, false},
                  {GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, false},
                  {GENERIC_READ, FILE_SHARE_READ, true},
                  {GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, true}};
    for (size_t i = 0; i < sizeof s_uses / sizeof *s_uses; i++) {
        const HANDLE beside = open_beside(path, s_uses[i].access, s_uses[i].share);
        CHECK(beside != INVALID_HANDLE_VALUE);
        if (s_uses[i].is_shared) check_is_file(path);
        else check_path_refused(path, SUMI_FILE_READ_FAILED, "another program has it open");
        CHECK(sumi_file_exists(NULL, path) && sumi_path_is_file(path));
        CloseHandle(beside);
    }
    check_is_file(path);
    remove_path(path);
}

// While sumi has a file mapped, others may read it. They may move and delete it, or the system refuses that; they cannot
// change what sumi reads.
TEST(a_mapped_file_keeps_its_content)
{
    char path[500], moved[500];
    snprintf(path, sizeof path, "%s", scratch("mapped", "file"));
    snprintf(moved, sizeof moved, "%s", scratch("mapped", "moved"));
    make_file(path);
    sumi_file file;
    sumi_error error = {0};
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, path, &error), SUMI_OK);
    check_is_file(path);
    const HANDLE beside = open_beside(path, GENERIC_READ, FILE_SHARE_READ);
    CHECK(beside != INVALID_HANDLE_VALUE);
    CloseHandle(beside);
    wchar_t to[4096];
    wcscpy(to, prefixed(moved));
    const bool is_moved = MoveFileW(prefixed(path), to);
    const bool is_deleted = DeleteFileW(prefixed(is_moved ? moved : path));
    printf("  a mapped file %s be moved and %s be deleted\n", is_moved ? "can" : "cannot",
           is_deleted ? "can" : "cannot");
    CHECK(file.bytes == 2 && memcmp(file.data, "{}", 2) == 0);
    sumi_file_close(&file);
    if (!is_deleted) remove_path(is_moved ? moved : path);
}

// "\\?\" before an absolute path, whose backslashes and length then are the caller's business; shares.
TEST(prefixes_and_shares_are_left_alone)
{
    char path[500], other[600];
    snprintf(path, sizeof path, "%s", scratch("prefix", "file"));
    make_file(path);
    for (char* at = path; *at != 0; at++)
        if (*at == '/') *at = '\\';
    static const char* const s_prefixes[] = {"\\\\?\\", "\\\\.\\"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(other, sizeof other, "%s%s", s_prefixes[i], path);
        check_is_file(other);
        CHECK(sumi_path_is_file(other));
        snprintf(other, sizeof other, "%s%s.not", s_prefixes[i], path);
        check_path_refused(other, SUMI_FILE_NOT_FOUND, "no such file");
    }
    check_path_refused("\\\\no-such-server.invalid\\share\\file", SUMI_FILE_NOT_FOUND, "no such file");
    snprintf(other, sizeof other, "\\\\localhost\\%c$%s", path[0], path + 2);
    wchar_t wide[700];
    const bool has_share = MultiByteToWideChar(CP_UTF8, 0, other, -1, wide, 700) > 0
                        && GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES;
    if (has_share) check_is_file(other);
    remove_path(path);
    if (!has_share) SKIP("this system shares no drive with itself, so shares were not tried (prefixes were)");
}

TEST(every_path_of_a_model_may_be_no_file) { SKIP("Windows has neither FIFOs nor sockets in folders"); }
TEST(a_pipe_is_not_opened_at_all) { SKIP("Windows has no FIFOs in folders"); }
TEST(adapters_and_given_paths_may_be_no_files) { SKIP("Windows has neither FIFOs nor sockets in folders"); }
TEST(broken_paths_are_told_apart) { SKIP("links in Windows need a privilege"); }
#else
typedef enum special { FIFO, SOCKET, FOLDER, DANGLING, CIRCLE, PLAIN, SPECIAL_COUNT } special;
static const char* const s_names[SPECIAL_COUNT] = {"FIFO", "socket", "folder", "link to nothing", "circle", "file"};

// Puts something that is not what is due at the path, at which there is nothing.
static void make_special(const char* path, special kind)
{
    bool is_made = false;
    if (kind == FIFO) is_made = mkfifo(path, 0600) == 0;
    if (kind == FOLDER) is_made = mkdir(path, 0700) == 0;
    if (kind == DANGLING) is_made = symlink("nothing at all", path) == 0;
    if (kind == CIRCLE) is_made = symlink(system_file_name(path), path) == 0;
    if (kind == PLAIN) {
        write_file(path, "{}", 2);
        is_made = true;
    }
    if (kind == SOCKET) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(strlen(path) < sizeof address.sun_path);
        snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
        is_made = bind(listener, (const struct sockaddr*)&address, sizeof address) == 0;
        close(listener);
    }
    CHECK(is_made);
}

static void copy_model(const char* from, const char* to)
{
    int count;
    char** names = system_list(from, &count);
    system_make_folder(to);
    for (int i = 0; i < count; i++) {
        char source[512], copy[512];
        snprintf(source, sizeof source, "%s/%s", from, names[i]);
        snprintf(copy, sizeof copy, "%s/%s", to, names[i]);
        if (system_look_at(source) == SYSTEM_FOLDER) copy_model(source, copy);
        else copy_file(source, copy);
    }
    system_free_list(names, count);
}

// Loading must fail at once and say which path is wrong.
static void check_load(const char* model, const char* path, special kind, bool is_folder)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = model;
    const sumi_model* opened = open_model(&desc);
    const bool is_missing = kind == DANGLING || (is_folder && kind != CIRCLE);
    if (opened != NULL || s_result != (is_missing ? SUMI_FILE_NOT_FOUND : SUMI_FILE_READ_FAILED)
        || strstr(s_message, path) == NULL) {
        printf("  a %s at %s: %s: %s\n", s_names[kind], path, sumi_result_text(s_result), s_message);
        t_errors++;
    }
}

// Every file and folder of a model in turn is replaced by something else.
TEST(every_path_of_a_model_may_be_no_file)
{
    static const struct {
        const char *model, *path;
        bool is_folder;
    } s_paths[] = {
        {"z", "model_index.json", false},
        {"z", "transformer/config.json", false},
        {"z", "transformer/diffusion_pytorch_model.safetensors.index.json", false},
        {"z", "transformer/diffusion_pytorch_model-00002-of-00003.safetensors", false},
        {"z", "text_encoder/config.json", false},
        {"z", "text_encoder/model.safetensors.index.json", false},
        {"z", "text_encoder/model-00003-of-00003.safetensors", false},
        {"z", "vae/config.json", false},
        {"z", "vae/diffusion_pytorch_model.safetensors", false},
        {"z", "tokenizer/tokenizer.json", false},
        {"z", "scheduler/scheduler_config.json", false},
        {"z", "transformer", true},
        {"z", "text_encoder", true},
        {"z", "vae", true},
        {"z", "tokenizer", true},
        {"z", "scheduler", true},
        {"v", "tokenizer/vocab.json", false},
        {"v", "tokenizer/merges.txt", false},
        {"v", "tokenizer/tokenizer_config.json", false},
        {"q", "processor/preprocessor_config.json", false},
        {"q", "processor", true},
    };
    copy_model(MODEL_PATH, scratch("z", ""));
    copy_model(MODEL_PATH, scratch("v", ""));
    system_remove(scratch("v", "tokenizer/tokenizer.json")); // vocab.json with merges.txt is what is left
    copy_model("tests/golden/qwen-image/model", scratch("q", ""));
    copy_model("tests/golden/qwen-image/model-edit", scratch("q", ""));
    for (size_t i = 0; i < sizeof s_paths / sizeof *s_paths; i++) {
        char path[256], kept[300];
        snprintf(path, sizeof path, "%s", scratch(s_paths[i].model, s_paths[i].path));
        snprintf(kept, sizeof kept, "%s.kept", path);
        CHECK(rename(path, kept) == 0);
        for (int kind = 0; kind < SPECIAL_COUNT; kind++) {
            if (kind == (s_paths[i].is_folder ? FOLDER : PLAIN)) continue;
            make_special(path, (special)kind);
            check_load(scratch(s_paths[i].model, ""), path, (special)kind, s_paths[i].is_folder);
            system_remove(path);
        }
        CHECK(rename(kept, path) == 0);
    }
    // and the engine still works
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = scratch("z", "");
    CHECK(open_model(&desc) != NULL);
}

TEST(adapters_and_given_paths_may_be_no_files)
{
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    sumi_model* model = open_model(&md);
    CHECK(model != NULL);
    if (model == NULL) return;
    system_make_folder(scratch("peft", ""));
    copy_file(LORA_PATH "lora_kohya.safetensors", scratch("beside", "adapter_model.safetensors"));
    const struct {
        const char *made, *opened;
    } cases[] = {{"lone", "lone"},
                 {"peft/adapter_model.safetensors", "peft"},
                 {"beside/adapter_config.json", "beside/adapter_model.safetensors"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int kind = 0; kind < PLAIN; kind++) {
            if (kind == FOLDER && i == 0) continue; // a folder may be an adapter
            char made[256], opened[256];
            snprintf(made, sizeof made, "%s/%s", s_folder, cases[i].made);
            snprintf(opened, sizeof opened, "%s/%s", s_folder, cases[i].opened);
            make_special(made, (special)kind);
            sumi_lora_desc desc = sumi_lora_defaults(model);
            desc.path = opened;
            sumi_job job = {0};
            CHECK_NUMBER(sumi_submit_lora(s_engine, &desc, &job), SUMI_OK);
            sumi_job_wait(s_engine, job, SUMI_FOREVER);
            const sumi_job_status status = sumi_job_poll(s_engine, job);
            CHECK_NUMBER(status.result, kind == DANGLING ? SUMI_FILE_NOT_FOUND : SUMI_FILE_READ_FAILED);
            CHECK(strstr(status.message, made) != NULL);
            sumi_job_discard(s_engine, job);
            system_remove(made);
        }
    }
    // paths of the desc, each a FIFO
    make_special(scratch("given", "fifo"), FIFO);
    const char* fifo = scratch("given", "fifo");
    for (int i = 0; i < 6; i++) {
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = i == 0 ? fifo : MODEL_PATH;
        if (i == 1) desc.transformer_path = fifo;
        if (i == 2) desc.text_encoder_path = fifo;
        if (i == 3) desc.vae_path = fifo;
        if (i == 4) desc.tokenizer_path = fifo;
        if (i == 5) desc.processor_path = fifo;
        CHECK(open_model(&desc) == NULL);
        CHECK_NUMBER(s_result, SUMI_FILE_READ_FAILED);
        CHECK(strstr(s_message, "is a pipe, not a regular file") != NULL);
    }
}

TEST(a_pipe_is_not_opened_at_all)
{
#if defined(__linux__)
    const char* path = scratch("pipe", "fifo");
    make_special(path, FIFO);
    const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(watch >= 0 && inotify_add_watch(watch, path, IN_OPEN) >= 0);
    check_path_refused(path, SUMI_FILE_READ_FAILED, "is a pipe, not a regular file");
    char event[256];
    CHECK(read(watch, event, sizeof event) < 0); // a reader that comes and goes would end the program that writes
    close(watch);
#else
    SKIP("Linux alone tells who opens a file");
#endif
}

TEST(broken_paths_are_told_apart)
{
    make_special(scratch("broken", "link"), DANGLING);
    make_special(scratch("broken", "circle"), CIRCLE);
    make_special(scratch("broken", "file"), PLAIN);
    CHECK(symlink("file", scratch("broken", "good")) == 0);
    check_path_refused(scratch("broken", "link"), SUMI_FILE_NOT_FOUND,
                       "is a symbolic link to something that does not exist");
    check_path_refused(scratch("broken", "link/below"), SUMI_FILE_NOT_FOUND, "broken/link is not a folder, or");
    check_path_refused(scratch("broken", "link/below/that"), SUMI_FILE_NOT_FOUND, "broken/link is not a folder, or");
    check_path_refused(scratch("broken", "file/below"), SUMI_FILE_NOT_FOUND, "broken/file is not a folder, or");
    check_path_refused(scratch("broken", "good/below"), SUMI_FILE_NOT_FOUND, "broken/good is not a folder, or");
    check_path_refused(scratch("broken", "circle"), SUMI_FILE_READ_FAILED, "form a circle");
    check_path_refused(scratch("broken", "nothing/below"), SUMI_FILE_NOT_FOUND, "no such file; check the path");
    sumi_file file;
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, scratch("broken", "good"), NULL), SUMI_OK);
    CHECK_NUMBER(file.bytes, 2);
    sumi_file_close(&file);
    CHECK(sumi_file_exists(NULL, scratch("broken", "link")) && !sumi_path_is_file(scratch("broken", "link")));
    CHECK(sumi_file_exists(NULL, scratch("broken", "file/below")));
    CHECK(!sumi_file_exists(NULL, scratch("broken", "nothing/below")));
    CHECK(!sumi_file_exists(NULL, "") && !sumi_file_exists(NULL, "/nothing at the root"));
}
#endif

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
#if !defined(_WIN32)
    alarm(120); // a test that blocks ends the program
#endif
    static host s_h;
    sumi_engine_desc desc = host_desc(&s_h);
    sumi_heap_init(&s_heap, NULL);
    s_engine = open_engine(&desc, NULL);
    scratch("", "");
    RUN(paths_may_be_long);
    RUN(names_may_be_in_any_script);
    RUN(a_file_of_20_gigabytes_is_mapped);
#if defined(_WIN32)
    RUN(files_in_use_are_refused_or_shared);
    RUN(a_mapped_file_keeps_its_content);
    RUN(prefixes_and_shares_are_left_alone);
#endif
    RUN(folders_and_devices_are_no_files);
    RUN(every_path_of_a_model_may_be_no_file);
    RUN(adapters_and_given_paths_may_be_no_files);
    RUN(a_pipe_is_not_opened_at_all);
    RUN(broken_paths_are_told_apart);
    sumi_engine_destroy(s_engine);
    remove_folder(s_folder);
    TEST_END();
}
