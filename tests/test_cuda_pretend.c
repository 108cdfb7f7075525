// The stand-in that makes a driver say that its device is another card (pretend_cuda), with the driver that needs no GPU
// (fake_cuda) as the real one, whose device is of 9.0. A library cannot be closed and opened anew, so that each test
// runs in a process of its own.
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/modules.h"
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

// ---- Processes ------------------------------------------------------------------------------------------------------

static char s_folder[3000]; // of this configuration: bin, fake and pretend are in it
static char s_fake[3100], s_pretend[3100];

static bool find_folders(void)
{
    const ssize_t length = readlink("/proc/self/exe", s_folder, sizeof s_folder - 1);
    if (length <= 0) return false;
    s_folder[length] = 0;
    for (int i = 0; i < 2; i++) *strrchr(s_folder, '/') = 0; // the program's name, and bin
    snprintf(s_fake, sizeof s_fake, "%s/fake/libcuda.so.1", s_folder);
    snprintf(s_pretend, sizeof s_pretend, "%s/pretend/libcuda.so.1", s_folder);
    return true;
}

// Runs the checks in another process, whose driver pretends `setting`. NULL: nothing is pretended.
static void run_as(const char* setting, void (*checks)(void))
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setenv("SUMI_PRETEND_DRIVER", s_fake, 1);
        if (setting != NULL) setenv("SUMI_PRETEND", setting, 1);
        else unsetenv("SUMI_PRETEND");
        checks();
        fflush(stdout);
        _exit(t_errors > 0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) printf("  as %s: status %d\n", setting != NULL ? setting : "the real card", status);
    CHECK_NUMBER(status, 0);
}

// What a command prints, and its exit code.
static int run_command(char* text, size_t capacity, const char* format, const char* setting, const char* rest)
{
    char command[16000];
    snprintf(command, sizeof command, format, setting, s_folder, s_folder, s_folder, rest);
    FILE* pipe = popen(command, "r");
    if (pipe == NULL) return -1;
    const size_t bytes = fread(text, 1, capacity - 1, pipe);
    text[bytes] = 0;
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// ---- In the process that pretends -----------------------------------------------------------------------------------

static void* open_library(const char* path)
{
    void* library = dlopen(path, RTLD_NOW);
    if (library == NULL) printf("  %s\n", dlerror());
    CHECK(library != NULL);
    return library;
}

static void* symbol_of(void* library, const char* name)
{
    void* symbol = library != NULL ? dlsym(library, name) : NULL;
    if (symbol == NULL) printf("  no %s\n", name);
    CHECK(symbol != NULL);
    return symbol;
}

// The device as the backend sees it. The stand-in is found by its soname, as that of a real driver.
static bool open_device(sumi_cuda_device* device)
{
    sumi_error error = {0};
    sumi_engine_desc desc = sumi_engine_defaults();
    open_library(s_pretend);
    const sumi_result result = sumi_cuda_device_open(device, &desc, &error);
    CHECK_TEXT(error.text, "");
    return result == SUMI_OK;
}

static void check_device(const char* name, int capability, int multiprocessors, int shared, int per_multiprocessor,
                         int l2_bytes)
{
    sumi_cuda_device device;
    if (!open_device(&device)) return;
    CHECK_TEXT(device.name, name);
    CHECK_NUMBER(device.capability, capability);
    CHECK_NUMBER(device.multiprocessors, multiprocessors);
    CHECK_NUMBER(device.shared_per_block, shared);
    CHECK_NUMBER(device.shared_per_multiprocessor, per_multiprocessor);
    CHECK_NUMBER(device.l2_bytes, l2_bytes);
    CHECK(sumi_cuda_has_hopper(&device, true) == (capability == 90));
    sumi_cuda_device_close(&device);
}

static void is_the_real_card(void) { check_device("Fake 0, driver 13.0", 90, 132, 232448, 233472, 52428800); }
static void is_80(void) { check_device("Fake 0 as 8.0, driver 13.0", 80, 132, 166912, 167936, 52428800); }
static void is_86(void) { check_device("Fake 0 as 8.6,28,3, driver 13.0", 86, 28, 101376, 102400, 3 << 20); }
static void is_89(void) { check_device("Fake 0 as 8.9,ptx, driver 13.0", 89, 132, 101376, 102400, 52428800); }
static void is_120(void) { check_device("Fake 0 as 12.0,170, driver 13.0", 120, 170, 101376, 102400, 52428800); }

TEST(the_device_is_the_card_that_was_named)
{
    run_as(NULL, is_the_real_card);
    run_as("", is_the_real_card);
    run_as("8.0", is_80);
    run_as("8.6,28,3", is_86);
    run_as("8.9,ptx", is_89);
    run_as("12.0,170", is_120);
}

// Entries that are answered in the driver's place.
static const char* const s_answered[] = {"cuDeviceGetAttribute", "cuDeviceGetName", "cuModuleLoadDataEx",
                                         "cuFuncSetAttribute", "cuLinkComplete"};

static bool is_answered(const char* name)
{
    for (size_t i = 0; i < sizeof s_answered / sizeof *s_answered; i++)
        if (strcmp(s_answered[i], name) == 0) return getenv("SUMI_PRETEND") != NULL;
    return false;
}

// By cuGetProcAddress every entry is the real driver's own, and by name it is there and goes to the same one.
static void check_entries(void)
{
    static const struct {
        const char* name;
        int version;
    } s_entries[] = {
#define ENTRY(name, version, needed) {#name, version},
        SUMI_CUDA_ENTRIES(ENTRY)};
#undef ENTRY
    PFN_cuGetProcAddress_v12000 ours = NULL, real = NULL;
    void *pretend = open_library(s_pretend), *fake = open_library(s_fake);
    void *our_address = symbol_of(pretend, "cuGetProcAddress_v2"),
         *real_address = symbol_of(fake, "cuGetProcAddress_v2");
    if (our_address == NULL || real_address == NULL) return;
    CHECK(our_address != real_address);
    memcpy(&ours, &our_address, sizeof ours);
    memcpy(&real, &real_address, sizeof real);
    for (size_t i = 0; i < sizeof s_entries / sizeof *s_entries; i++) {
        CUdriverProcAddressQueryResult status;
        void *got = NULL, *want = NULL;
        CHECK_NUMBER(ours(s_entries[i].name, &got, s_entries[i].version, 1, &status), 0);
        CHECK_NUMBER(real(s_entries[i].name, &want, s_entries[i].version, 1, &status), 0);
        CHECK((got != NULL) == (want != NULL)); // the driver without a GPU lacks the linker unless a test wants it
        const bool is_ours = want != NULL && is_answered(s_entries[i].name);
        if ((got == want) == is_ours) printf("  %s\n", s_entries[i].name);
        CHECK((got != want) == is_ours);
        const bool is_of_windows = strstr(s_entries[i].name, "D3D11") != NULL; // real drivers for Linux have none
        if (!is_of_windows && dlsym(fake, s_entries[i].name) != NULL) (void)symbol_of(pretend, s_entries[i].name);
    }
    void* got = &got;
    CUdriverProcAddressQueryResult status;
    CHECK_NUMBER(ours("cuNoSuchEntry", &got, 2000, 1, &status), real("cuNoSuchEntry", &got, 2000, 1, &status));
    CHECK(got == NULL);
}

TEST(every_other_entry_is_the_driver_s)
{
    run_as(NULL, check_entries);
    run_as("8.9,28", check_entries);
}

// An image that names a target and holds one kernel; machine code is a header alone.
static const char s_ptx[] =
    ".version 7.4\n.target sm_%s\n.address_size 64\n\n.visible .entry sumi_none(\n\t.param .u64 a\n)\n{\n\tret;\n\n}\n";

static CUresult load(const sumi_cuda_device* device, const void* image, CUmodule* module)
{
    sumi_cuda_scope scope;
    sumi_error error = {0};
    *module = NULL;
    CHECK(sumi_cuda_enter(device, &scope, &error) == SUMI_OK);
    const CUresult result = device->driver.cuModuleLoadDataEx(module, image, 0, NULL, NULL);
    sumi_cuda_leave(device, &scope);
    return result;
}

static CUresult load_and_unload(const sumi_cuda_device* device, const void* image)
{
    sumi_cuda_scope scope;
    CUmodule module;
    const CUresult result = load(device, image, &module);
    if (result == CUDA_SUCCESS && sumi_cuda_enter(device, &scope, NULL) == SUMI_OK) {
        device->driver.cuModuleUnload(module);
        sumi_cuda_leave(device, &scope);
    }
    return result;
}

static CUresult load_ptx(const sumi_cuda_device* device, const char* target)
{
    char text[300];
    snprintf(text, sizeof text, s_ptx, target);
    return load_and_unload(device, text);
}

static CUresult load_binary(const sumi_cuda_device* device, int target)
{
    unsigned char elf[64] = "\177ELF\2\1\1\101\10";
    elf[49] = (unsigned char)target; // the second byte of the flags
    return load_and_unload(device, elf);
}

static bool take_binaries(void)
{
    void (*take)(bool) = NULL;
    void* symbol = symbol_of(open_library(s_fake), "fake_take_binaries");
    if (symbol == NULL) return false;
    memcpy(&take, &symbol, sizeof take);
    take(true);
    return true;
}

// As 8.9. The real card is of 9.0 and takes machine code for that alone.
static void check_images(void)
{
    sumi_cuda_device device;
    if (!open_device(&device)) return;
    CHECK_NUMBER(load_ptx(&device, "80"), CUDA_SUCCESS);
    CHECK_NUMBER(load_ptx(&device, "89"), CUDA_SUCCESS);
    CHECK_NUMBER(load_ptx(&device, "90"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_NUMBER(load_ptx(&device, "90a"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    if (!take_binaries()) return;
    CHECK_NUMBER(load_binary(&device, 90), CUDA_ERROR_NO_BINARY_FOR_GPU);  // not the card's
    CHECK_NUMBER(load_binary(&device, 120), CUDA_ERROR_NO_BINARY_FOR_GPU); // nor this
    CHECK_NUMBER(load_binary(&device, 89), CUDA_ERROR_NO_BINARY_FOR_GPU);  // the real card's driver says so
    sumi_cuda_device_close(&device);
}

// As 9.0, and as one that takes no machine code.
static void check_binaries(void)
{
    sumi_cuda_device device;
    if (!open_device(&device)) return;
    if (!take_binaries()) return;
    const bool has_ptx_alone = strstr(getenv("SUMI_PRETEND"), "ptx") != NULL;
    CHECK_NUMBER(load_binary(&device, 90), has_ptx_alone ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS);
    CHECK_NUMBER(load_ptx(&device, "90a"), CUDA_SUCCESS);
    CHECK_NUMBER(load_ptx(&device, "80"), CUDA_SUCCESS);
    sumi_cuda_device_close(&device);
}

TEST(images_are_those_that_both_cards_take)
{
    run_as("8.9", check_images);
    run_as("9.0", check_binaries);
    run_as("9.0,ptx", check_binaries);
}

// A block of the real card may have 227 KiB, one of the pretended card 99.
static void check_shared_memory(void)
{
    sumi_cuda_device device;
    if (!open_device(&device)) return;
    char text[300];
    snprintf(text, sizeof text, s_ptx, "80");
    CUmodule module;
    sumi_cuda_scope scope;
    sumi_error error = {0};
    CUfunction function = NULL;
    CHECK_NUMBER(load(&device, text, &module), CUDA_SUCCESS);
    if (module == NULL || sumi_cuda_enter(&device, &scope, &error) != SUMI_OK) return;
    const sumi_cuda_driver* driver = &device.driver;
    CHECK_NUMBER(driver->cuModuleGetFunction(&function, module, "sumi_none"), CUDA_SUCCESS);
    const CUfunction_attribute attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    CHECK_NUMBER(driver->cuFuncSetAttribute(function, attribute, 99 << 10), CUDA_SUCCESS);
    CHECK_NUMBER(driver->cuFuncSetAttribute(function, attribute, (99 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
    driver->cuModuleUnload(module);
    sumi_cuda_leave(&device, &scope);
    sumi_cuda_device_close(&device);
}

TEST(a_block_has_no_more_shared_memory_than_the_card_gives) { run_as("8.6", check_shared_memory); }

// ---- The program's own images ---------------------------------------------------------------------------------------

// The program's table of images, in the place of the library's: a source for 8.9 and for 9.0, another for 8.9 alone.
// Machine code is a header with an end, and a byte that tells two of a target apart; zlib stores it as it is.
enum { ELF_BYTES = 96, PACKED_BYTES = ELF_BYTES + 11, OWN_IMAGES = 3 };
static unsigned char s_elf[OWN_IMAGES][ELF_BYTES], s_packed[OWN_IMAGES][PACKED_BYTES];
static const char* const s_kernels[] = {"sumi_none"};
const sumi_cuda_image sumi_cuda_images[] = {
    {"alone", 89, true, s_packed[0], PACKED_BYTES, ELF_BYTES, s_kernels, 1},
    {"both", 89, true, s_packed[1], PACKED_BYTES, ELF_BYTES, s_kernels, 1},
    {"both", 90, true, s_packed[2], PACKED_BYTES, ELF_BYTES, s_kernels, 1},
};
const int32_t sumi_cuda_image_count = OWN_IMAGES;

static void make_images(void)
{
    for (int i = 0; i < OWN_IMAGES; i++) {
        memcpy(s_elf[i], "\177ELF\2\1\1\101\10", 9);
        s_elf[i][49] = (unsigned char)sumi_cuda_images[i].target; // the second byte of the flags
        s_elf[i][40] = 64, s_elf[i][58] = 32, s_elf[i][60] = 1;   // a header of a section of 32 bytes
        s_elf[i][ELF_BYTES - 1] = (unsigned char)i;
        uLongf packed = PACKED_BYTES;
        CHECK(compress2(s_packed[i], &packed, s_elf[i], ELF_BYTES, 0) == Z_OK);
        CHECK_NUMBER(packed, PACKED_BYTES);
    }
}

static int loaded(int capability)
{
    int (*images)(int, bool) = NULL;
    void* symbol = symbol_of(open_library(s_fake), "fake_images");
    if (symbol != NULL) memcpy(&images, &symbol, sizeof images);
    return images != NULL ? images(capability, true) : -1;
}

// As 8.9, whose machine code the real card of 9.0 refuses.
static void check_own_images(void)
{
    sumi_cuda_device device;
    make_images();
    if (!open_device(&device) || !take_binaries()) return;
    CHECK_NUMBER(load_and_unload(&device, s_elf[1]), CUDA_SUCCESS);
    CHECK_NUMBER(loaded(90), 1);
    CHECK_NUMBER(load_and_unload(&device, s_elf[0]), CUDA_ERROR_NO_BINARY_FOR_GPU); // it is for 8.9 alone
    CHECK_NUMBER(load_and_unload(&device, s_elf[2]), CUDA_ERROR_NO_BINARY_FOR_GPU); // not the card's
    s_elf[1][ELF_BYTES - 2] = 1;                                                    // no image of the program
    CHECK_NUMBER(load_and_unload(&device, s_elf[1]), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_NUMBER(loaded(0), 1);
    sumi_cuda_device_close(&device);
}

// As 9.0: nothing is looked for.
static void check_real_images(void)
{
    sumi_cuda_device device;
    make_images();
    if (!open_device(&device) || !take_binaries()) return;
    CHECK_NUMBER(load_and_unload(&device, s_elf[2]), CUDA_SUCCESS);
    CHECK_NUMBER(load_and_unload(&device, s_elf[1]), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_NUMBER(loaded(90), 1);
    sumi_cuda_device_close(&device);
}

TEST(kernels_are_loaded_as_the_program_has_them_for_the_real_card)
{
    run_as("8.9", check_own_images);
    run_as("9.0", check_real_images);
}

// ---- Whole programs -------------------------------------------------------------------------------------------------

#define BY_PATH "SUMI_PRETEND=%s LD_LIBRARY_PATH=%s/pretend:%s/fake %s/bin/sumi %s 2>&1"
#define WITHOUT_DRIVER "SUMI_PRETEND=%s SUMI_PRETEND_DRIVER=%s/none LD_LIBRARY_PATH=%s/pretend %s/bin/sumi %s 2>&1"

static bool says(const char* format, const char* setting, const char* rest, int want_status, const char* want)
{
    char text[8000];
    const int status = run_command(text, sizeof text, format, setting, rest);
    const bool is_right = status == want_status && strstr(text, want) != NULL;
    if (!is_right) printf("  as %s: exit code %d, \"%s\" is not in: %s\n", setting, status, want, text);
    return is_right;
}

TEST(the_command_line_runs_as_a_card)
{
    CHECK(says(BY_PATH, "8.9,28", "info", 0, "Fake 0 as 8.9,28, driver 13.0, compute capability 8.9"));
    CHECK(says(BY_PATH, "''", "info", 0, "Fake 0, driver 13.0, compute capability 9.0"));
    static const char* const s_cards[] = {"8.0", "8.6,28", "8.9", "12.0"};
    for (size_t i = 0; i < sizeof s_cards / sizeof *s_cards; i++)
        CHECK(says(BY_PATH, s_cards[i],
                   "generate --model tests/golden/z-image/model --backend cuda --quiet --prompt 'a red fox' "
                   "--size 64x48 --steps 2 -o -",
                   0, "PNG"));
}

TEST(a_setting_that_is_none_ends_the_program)
{
    static const char* const s_wrong[] = {"8",     "7.5",        "89",         "8.9,",   "8.9,0",
                                          "8.9,x", "8.9,28,4,1", "8.9,ptx,28", "8.9 ,28"};
    for (size_t i = 0; i < sizeof s_wrong / sizeof *s_wrong; i++) {
        char quoted[40];
        snprintf(quoted, sizeof quoted, "'%s'", s_wrong[i]);
        CHECK(says(BY_PATH, quoted, "info", 2, "pretend_cuda: SUMI_PRETEND"));
    }
    CHECK(
        says(BY_PATH, "8.90000000000000000000000000000000000000000000000000000000000000000000", "info", 2, "too long"));
}

TEST(without_a_driver_there_is_no_device)
{
    CHECK(says(WITHOUT_DRIVER, "8.9", "info", 0, "there is no other libcuda.so.1"));
    CHECK(says(WITHOUT_DRIVER, "8.9", "info", 0, "not available: the NVIDIA driver has no device to offer"));
}

#define BY_ARGUMENT "SUMI_PRETEND=%s LD_LIBRARY_PATH=%s/fake %s/bin/golden_run --backend cuda %.0s%s 2>&1 | head -n 40"

// --as of golden_run, test_cuda_ops, bench and pacing is one function.
TEST(an_argument_does_the_same)
{
    CHECK(says(BY_ARGUMENT, "''", "--as 8.6,28 tests/golden/z-image", 0, "Fake 0 as 8.6,28, driver 13.0"));
    CHECK(says(BY_ARGUMENT, "''", "tests/golden/z-image", 0, "Fake 0, driver 13.0"));
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!find_folders()) return 1;
    RUN(the_device_is_the_card_that_was_named);
    RUN(every_other_entry_is_the_driver_s);
    RUN(images_are_those_that_both_cards_take);
    RUN(a_block_has_no_more_shared_memory_than_the_card_gives);
    RUN(kernels_are_loaded_as_the_program_has_them_for_the_real_card);
    RUN(the_command_line_runs_as_a_card);
    RUN(a_setting_that_is_none_ends_the_program);
    RUN(without_a_driver_there_is_no_device);
    RUN(an_argument_does_the_same);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
