// Images in Vulkan's memory, with a GPU's own drivers: images and buffers in every format, the order of semaphores,
// previews, what is refused, releases in flight. The Khronos validation layer watches where it is installed.
// Skipped where Vulkan does not have the engine's GPU. (test_cuda_imports holds the rules of the calls, on a driver that
// is none.)
#include "engine_fixture.h"
#if defined SUMI_HAS_CUDA && defined SUMI_TEST_HAS_VULKAN
#include "base/platform.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <unistd.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

// ---- The host's Vulkan ----------------------------------------------------------------------------------------------

#define WITHOUT_INSTANCE(X)                                                                                            \
    X(vkCreateInstance)                                                                                                \
    X(vkEnumerateInstanceLayerProperties)                                                                              \
    X(vkEnumerateInstanceVersion)
#define OF_INSTANCE(X)                                                                                                 \
    X(vkDestroyInstance)                                                                                               \
    X(vkEnumeratePhysicalDevices)                                                                                      \
    X(vkGetPhysicalDeviceProperties2)                                                                                  \
    X(vkGetPhysicalDeviceMemoryProperties)                                                                             \
    X(vkEnumerateDeviceExtensionProperties)                                                                            \
    X(vkCreateDevice)                                                                                                  \
    X(vkGetPhysicalDeviceImageFormatProperties2)                                                                       \
    X(vkGetPhysicalDeviceExternalBufferProperties)                                                                     \
    X(vkGetPhysicalDeviceQueueFamilyProperties)                                                                        \
    X(vkGetDeviceProcAddr)
#define OF_DEVICE(X)                                                                                                   \
    X(vkDestroyDevice)                                                                                                 \
    X(vkGetDeviceQueue)                                                                                                \
    X(vkCreateImage)                                                                                                   \
    X(vkDestroyImage)                                                                                                  \
    X(vkGetImageMemoryRequirements)                                                                                    \
    X(vkAllocateMemory)                                                                                                \
    X(vkFreeMemory)                                                                                                    \
    X(vkBindImageMemory)                                                                                               \
    X(vkCreateBuffer)                                                                                                  \
    X(vkDestroyBuffer)                                                                                                 \
    X(vkGetBufferMemoryRequirements)                                                                                   \
    X(vkBindBufferMemory)                                                                                              \
    X(vkMapMemory)                                                                                                     \
    X(vkCreateSemaphore)                                                                                               \
    X(vkDestroySemaphore)                                                                                              \
    X(vkGetSemaphoreCounterValue)                                                                                      \
    X(vkSignalSemaphore)                                                                                               \
    X(vkWaitSemaphores)                                                                                                \
    X(vkCreateCommandPool)                                                                                             \
    X(vkDestroyCommandPool)                                                                                            \
    X(vkAllocateCommandBuffers)                                                                                        \
    X(vkBeginCommandBuffer)                                                                                            \
    X(vkEndCommandBuffer)                                                                                              \
    X(vkCmdPipelineBarrier)                                                                                            \
    X(vkCmdClearColorImage)                                                                                            \
    X(vkCmdFillBuffer)                                                                                                 \
    X(vkCmdCopyBuffer)                                                                                                 \
    X(vkCmdCopyImageToBuffer)                                                                                          \
    X(vkQueueSubmit)                                                                                                   \
    X(vkQueueWaitIdle)                                                                                                 \
    X(vkGetMemoryFdKHR)                                                                                                \
    X(vkGetSemaphoreFdKHR)

static struct {
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    PFN_vkCreateDebugUtilsMessengerEXT vkCreateDebugUtilsMessengerEXT;
    PFN_vkDestroyDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT;
#define MEMBER(name) PFN_##name name;
    WITHOUT_INSTANCE(MEMBER)
    OF_INSTANCE(MEMBER)
    OF_DEVICE(MEMBER)
#undef MEMBER
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger;
    VkPhysicalDevice physical;
    VkPhysicalDeviceMemoryProperties memory;
    VkDevice device;
    uint32_t family;
    VkQueue queue;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkBuffer readback; // mapped at `pixels`
    VkDeviceMemory readback_memory;
    unsigned char* pixels;
    uint8_t uuid[16];
    int (*memory_info)(size_t* free_bytes, size_t* total_bytes); // CUDA's
    int (*retain)(struct CUctx_st** context, int device);
    int (*set_current)(struct CUctx_st* context);
} s_vk;
static int s_messages = -1; // of the validation layer; -1: it is not installed
static const char* s_why_not;

enum { READBACK_BYTES = 1 << 22 };

#define VK(call) CHECK_NUMBER((int)(call), VK_SUCCESS)

static VKAPI_ATTR VkBool32 VKAPI_CALL count_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                    VkDebugUtilsMessageTypeFlagsEXT types,
                                                    const VkDebugUtilsMessengerCallbackDataEXT* data, void* user_data)
{
    (void)severity, (void)types, (void)user_data;
    s_messages++;
    printf("  validation: %s\n", data->pMessage);
    return VK_FALSE;
}

static bool open_instance(void)
{
    void* library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    s_why_not = "there is no libvulkan.so.1";
    if (library == NULL) return false;
    void* symbol = dlsym(library, "vkGetInstanceProcAddr");
    memcpy(&s_vk.vkGetInstanceProcAddr, &symbol, sizeof symbol);
#define FIND(name)                                                                                                     \
    s_why_not = "the Vulkan loader has no " #name;                                                                     \
    s_vk.name = (PFN_##name)s_vk.vkGetInstanceProcAddr(s_vk.instance, #name);                                          \
    if (s_vk.name == NULL) return false;
    WITHOUT_INSTANCE(FIND)
    uint32_t version = 0, count = 64;
    VkLayerProperties layers[64];
    s_vk.vkEnumerateInstanceVersion(&version);
    s_why_not = "the Vulkan loader is older than 1.2";
    if (version < VK_API_VERSION_1_2) return false;
    s_vk.vkEnumerateInstanceLayerProperties(&count, layers);
    bool validates = false;
    for (uint32_t i = 0; i < count && !validates; i++)
        validates = strcmp(layers[i].layerName, "VK_LAYER_KHRONOS_validation") == 0;
    const VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = count_message};
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application,
                                       .enabledLayerCount = validates,
                                       .ppEnabledLayerNames = (const char*[]){"VK_LAYER_KHRONOS_validation"},
                                       .enabledExtensionCount = validates,
                                       .ppEnabledExtensionNames = (const char*[]){VK_EXT_DEBUG_UTILS_EXTENSION_NAME}};
    s_why_not = "there is no Vulkan driver";
    if (s_vk.vkCreateInstance(&info, NULL, &s_vk.instance) != VK_SUCCESS) return false;
    OF_INSTANCE(FIND)
    if (!validates) return true;
    FIND(vkCreateDebugUtilsMessengerEXT)
    FIND(vkDestroyDebugUtilsMessengerEXT)
    s_messages = 0;
    return s_vk.vkCreateDebugUtilsMessengerEXT(s_vk.instance, &messenger, NULL, &s_vk.messenger) == VK_SUCCESS;
#undef FIND
}

static bool has_extension(VkPhysicalDevice device, const char* name)
{
    VkExtensionProperties list[512];
    uint32_t count = 512;
    s_vk.vkEnumerateDeviceExtensionProperties(device, NULL, &count, list);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].extensionName, name) == 0) return true;
    }
    return false;
}

static bool find_device(const uint8_t* uuid)
{
    VkPhysicalDevice devices[16];
    uint32_t count = 16;
    s_vk.vkEnumeratePhysicalDevices(s_vk.instance, &count, devices);
    for (uint32_t i = 0; i < count; i++) {
        VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
        VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                                  .pNext = &id};
        s_vk.vkGetPhysicalDeviceProperties2(devices[i], &properties);
        const bool is_sumis = memcmp(id.deviceUUID, uuid, VK_UUID_SIZE) == 0;
        printf("Vulkan device %u: %s%s\n", (unsigned)i, properties.properties.deviceName,
               is_sumis ? ", the engine's" : "");
        if (!is_sumis || !has_extension(devices[i], VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME)
            || !has_extension(devices[i], VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME))
            continue;
        s_vk.physical = devices[i];
        memcpy(s_vk.uuid, uuid, sizeof s_vk.uuid);
    }
    s_why_not = "Vulkan does not have the engine's GPU, or cannot share its memory";
    return s_vk.physical != VK_NULL_HANDLE;
}

static VkDeviceMemory allocate(const VkMemoryRequirements* need, VkMemoryPropertyFlags wanted, const void* next)
{
    VkDeviceMemory memory = VK_NULL_HANDLE;
    uint32_t type = 0;
    while (
        type < s_vk.memory.memoryTypeCount
        && (!(need->memoryTypeBits & 1u << type) || (s_vk.memory.memoryTypes[type].propertyFlags & wanted) != wanted))
        type++;
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = next,
                                       .allocationSize = need->size,
                                       .memoryTypeIndex = type};
    CHECK(type < s_vk.memory.memoryTypeCount);
    VK(s_vk.vkAllocateMemory(s_vk.device, &info, NULL, &memory));
    return memory;
}

static bool open_device(void)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = 32;
    s_vk.vkGetPhysicalDeviceQueueFamilyProperties(s_vk.physical, &count, families);
    while (s_vk.family < count && !(families[s_vk.family].queueFlags & (VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT)))
        s_vk.family++;
    const VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                                       .timelineSemaphore = VK_TRUE};
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = s_vk.family,
                                           .queueCount = 1,
                                           .pQueuePriorities = (const float[]){1.0f}};
    const VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &features,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
        .enabledExtensionCount = 2,
        .ppEnabledExtensionNames =
            (const char*[]){VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME}};
    s_why_not = "the Vulkan device cannot be opened";
    if (s_vk.vkCreateDevice(s_vk.physical, &info, NULL, &s_vk.device) != VK_SUCCESS) return false;
#define FIND(name)                                                                                                     \
    s_why_not = "the Vulkan device has no " #name;                                                                     \
    s_vk.name = (PFN_##name)s_vk.vkGetDeviceProcAddr(s_vk.device, #name);                                              \
    if (s_vk.name == NULL) return false;
    OF_DEVICE(FIND)
#undef FIND
    s_vk.vkGetPhysicalDeviceMemoryProperties(s_vk.physical, &s_vk.memory);
    s_vk.vkGetDeviceQueue(s_vk.device, s_vk.family, 0, &s_vk.queue);
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = s_vk.family};
    VK(s_vk.vkCreateCommandPool(s_vk.device, &pool, NULL, &s_vk.pool));
    const VkCommandBufferAllocateInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = s_vk.pool, .commandBufferCount = 1};
    VK(s_vk.vkAllocateCommandBuffers(s_vk.device, &commands, &s_vk.commands));
    const VkBufferCreateInfo buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                       .size = READBACK_BYTES,
                                       .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryRequirements need;
    void* mapped = NULL;
    VK(s_vk.vkCreateBuffer(s_vk.device, &buffer, NULL, &s_vk.readback));
    s_vk.vkGetBufferMemoryRequirements(s_vk.device, s_vk.readback, &need);
    s_vk.readback_memory =
        allocate(&need, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, NULL);
    VK(s_vk.vkBindBufferMemory(s_vk.device, s_vk.readback, s_vk.readback_memory, 0));
    VK(s_vk.vkMapMemory(s_vk.device, s_vk.readback_memory, 0, VK_WHOLE_SIZE, 0, &mapped));
    s_vk.pixels = mapped;
    return true;
}

static bool find_cuda(void)
{
    void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
    s_why_not = "there is no NVIDIA driver here";
    if (cuda == NULL) return false;
    const struct {
        const char* name;
        void* into;
    } entries[] = {{"cuMemGetInfo_v2", &s_vk.memory_info},
                   {"cuDevicePrimaryCtxRetain", &s_vk.retain},
                   {"cuCtxSetCurrent", &s_vk.set_current}};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void* entry = dlsym(cuda, entries[i].name);
        s_why_not = entries[i].name;
        if (entry == NULL) return false;
        memcpy(entries[i].into, &entry, sizeof entry);
    }
    return true;
}

static bool open_vulkan(void)
{
    if (!find_cuda() || !open_instance()) return false;
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    sumi_engine* engine;
    s_why_not = "there is no GPU that CUDA can use";
    if (sumi_engine_create(&desc, &engine) != SUMI_OK) return false;
    const sumi_engine_info info = sumi_engine_get_info(engine);
    sumi_engine_destroy(engine);
    return find_device(info.device_uuid) && open_device();
}

static void close_vulkan(void)
{
    s_vk.vkDestroyBuffer(s_vk.device, s_vk.readback, NULL);
    s_vk.vkFreeMemory(s_vk.device, s_vk.readback_memory, NULL);
    s_vk.vkDestroyCommandPool(s_vk.device, s_vk.pool, NULL);
    s_vk.vkDestroyDevice(s_vk.device, NULL);
    if (s_vk.messenger != VK_NULL_HANDLE) s_vk.vkDestroyDebugUtilsMessengerEXT(s_vk.instance, s_vk.messenger, NULL);
    s_vk.vkDestroyInstance(s_vk.instance, NULL);
}

// ---- Shared things --------------------------------------------------------------------------------------------------

static const size_t s_pixel_bytes[] = {4, 3, 12, 4, 8}; // by sumi_format

typedef struct thing {
    VkImage image; // or
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t memory_bytes;
    int32_t width, height;
    sumi_format format;
    bool is_dedicated, is_attachment;
    size_t offset, pitch; // of a buffer
} thing;

static void begin_commands(void)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VK(s_vk.vkBeginCommandBuffer(s_vk.commands, &info));
}

static void run_commands(void)
{
    VK(s_vk.vkEndCommandBuffer(s_vk.commands));
    const VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &s_vk.commands};
    VK(s_vk.vkQueueSubmit(s_vk.queue, 1, &info, VK_NULL_HANDLE));
    VK(s_vk.vkQueueWaitIdle(s_vk.queue));
}

// Between this queue family and the world outside, and between two layouts of an image.
static void hand_over(const thing* t, VkImageLayout from, VkImageLayout to, bool leaves, bool comes)
{
    const uint32_t out = comes  ? VK_QUEUE_FAMILY_EXTERNAL
                       : leaves ? s_vk.family
                                : VK_QUEUE_FAMILY_IGNORED,
                   in = comes  ? s_vk.family
                      : leaves ? VK_QUEUE_FAMILY_EXTERNAL
                               : VK_QUEUE_FAMILY_IGNORED;
    const VkAccessFlags writes = VK_ACCESS_TRANSFER_WRITE_BIT, reads = VK_ACCESS_TRANSFER_READ_BIT;
    const VkImageMemoryBarrier image = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
        .srcAccessMask = comes ? 0 : writes,
        .dstAccessMask = leaves ? 0 : reads | writes,
        .oldLayout = from,
        .newLayout = to,
        .srcQueueFamilyIndex = out,
        .dstQueueFamilyIndex = in,
        .image = t->image,
        .subresourceRange = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .levelCount = 1, .layerCount = 1}};
    const VkBufferMemoryBarrier buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
                                          .srcAccessMask = comes ? 0 : writes,
                                          .dstAccessMask = leaves ? 0 : reads | writes,
                                          .srcQueueFamilyIndex = out,
                                          .dstQueueFamilyIndex = in,
                                          .buffer = t->buffer,
                                          .size = VK_WHOLE_SIZE};
    const bool is_image = t->image != VK_NULL_HANDLE;
    s_vk.vkCmdPipelineBarrier(s_vk.commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0,
                              0, NULL, !is_image, &buffer, is_image, &image);
}

// Fills the whole thing with a content that no picture has, and hands it over.
static void prepare(const thing* t)
{
    begin_commands();
    if (t->image != VK_NULL_HANDLE) {
        const VkClearColorValue color = {.float32 = {1.0f, 0.0f, 1.0f, 0.0f}};
        const VkImageSubresourceRange all = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .levelCount = 1, .layerCount = 1};
        hand_over(t, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, false, false);
        s_vk.vkCmdClearColorImage(s_vk.commands, t->image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &color, 1, &all);
        hand_over(t, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_GENERAL, true, false);
    } else {
        s_vk.vkCmdFillBuffer(s_vk.commands, t->buffer, 0, VK_WHOLE_SIZE, 0x55555555);
        hand_over(t, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_UNDEFINED, true, false);
    }
    run_commands();
}

// Takes it back and copies its pixels, without gaps, to `into`. Of a buffer also the bytes around the rows are checked.
static void read_back(const thing* t, unsigned char* into)
{
    const size_t row = (size_t)t->width * s_pixel_bytes[t->format];
    const size_t buffer_bytes = t->offset + t->pitch * (size_t)t->height;
    begin_commands();
    if (t->image != VK_NULL_HANDLE) {
        const VkBufferImageCopy whole = {.imageSubresource = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .layerCount = 1},
                                         .imageExtent = {(uint32_t)t->width, (uint32_t)t->height, 1}};
        hand_over(t, VK_IMAGE_LAYOUT_GENERAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, false, true);
        s_vk.vkCmdCopyImageToBuffer(s_vk.commands, t->image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, s_vk.readback, 1,
                                    &whole);
        hand_over(t, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, VK_IMAGE_LAYOUT_GENERAL, true, false);
    } else {
        const VkBufferCopy whole = {0, 0, buffer_bytes};
        hand_over(t, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_UNDEFINED, false, true);
        s_vk.vkCmdCopyBuffer(s_vk.commands, t->buffer, s_vk.readback, 1, &whole);
        hand_over(t, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_UNDEFINED, true, false);
    }
    const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    s_vk.vkCmdPipelineBarrier(s_vk.commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host,
                              0, NULL, 0, NULL);
    run_commands();
    const size_t pitch = t->image != VK_NULL_HANDLE ? row : t->pitch,
                 offset = t->image != VK_NULL_HANDLE ? 0 : t->offset;
    size_t touched = 0;
    for (size_t i = 0; i < offset; i++) touched += s_vk.pixels[i] != 0x55;
    for (size_t y = 0; y < (size_t)t->height; y++) {
        memcpy(into + y * row, s_vk.pixels + offset + y * pitch, row);
        for (size_t x = row; x < pitch; x++) touched += s_vk.pixels[offset + y * pitch + x] != 0x55;
    }
    CHECK_NUMBER((int)touched, 0);
}

static const VkExportMemoryAllocateInfo s_exported = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                                      .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};

// Whether the driver shares such an image, or buffer, only in memory of its own.
static bool image_is_dedicated(const VkImageCreateInfo* info)
{
    const VkPhysicalDeviceExternalImageFormatInfo external = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_IMAGE_FORMAT_INFO,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkPhysicalDeviceImageFormatInfo2 format = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
                                                     .pNext = &external,
                                                     .format = info->format,
                                                     .type = info->imageType,
                                                     .tiling = info->tiling,
                                                     .usage = info->usage};
    VkExternalImageFormatProperties found = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES};
    VkImageFormatProperties2 properties = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2, .pNext = &found};
    VK(s_vk.vkGetPhysicalDeviceImageFormatProperties2(s_vk.physical, &format, &properties));
    return found.externalMemoryProperties.externalMemoryFeatures & VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT;
}

static bool buffer_is_dedicated(const VkBufferCreateInfo* info)
{
    const VkPhysicalDeviceExternalBufferInfo buffer = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
                                                       .usage = info->usage,
                                                       .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkExternalBufferProperties found = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    s_vk.vkGetPhysicalDeviceExternalBufferProperties(s_vk.physical, &buffer, &found);
    return found.externalMemoryProperties.externalMemoryFeatures & VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT;
}

static void make_image(thing* t)
{
    static const VkFormat s_formats[] = {VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_UNDEFINED, VK_FORMAT_UNDEFINED,
                                         VK_FORMAT_B8G8R8A8_UNORM, VK_FORMAT_R16G16B16A16_SFLOAT};
    const VkExternalMemoryImageCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMAGE_CREATE_INFO,
                                                      .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                    .pNext = &external,
                                    .imageType = VK_IMAGE_TYPE_2D,
                                    .format = s_formats[t->format],
                                    .extent = {(uint32_t)t->width, (uint32_t)t->height, 1},
                                    .mipLevels = 1,
                                    .arrayLayers = 1,
                                    .samples = VK_SAMPLE_COUNT_1_BIT,
                                    .usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT
                                           | VK_IMAGE_USAGE_SAMPLED_BIT
                                           | (t->is_attachment ? VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT : 0u)};
    t->is_dedicated = t->is_dedicated || image_is_dedicated(&info);
    VkMemoryRequirements need;
    VK(s_vk.vkCreateImage(s_vk.device, &info, NULL, &t->image));
    s_vk.vkGetImageMemoryRequirements(s_vk.device, t->image, &need);
    const VkMemoryDedicatedAllocateInfo dedicated = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, .pNext = &s_exported, .image = t->image};
    t->memory = allocate(&need, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                         t->is_dedicated ? (const void*)&dedicated : (const void*)&s_exported);
    t->memory_bytes = need.size;
    VK(s_vk.vkBindImageMemory(s_vk.device, t->image, t->memory, 0));
    prepare(t);
}

static void make_buffer(thing* t)
{
    const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                       .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = &external,
                                     .size = t->offset + t->pitch * (size_t)t->height,
                                     .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    t->is_dedicated = t->is_dedicated || buffer_is_dedicated(&info);
    VkMemoryRequirements need;
    VK(s_vk.vkCreateBuffer(s_vk.device, &info, NULL, &t->buffer));
    s_vk.vkGetBufferMemoryRequirements(s_vk.device, t->buffer, &need);
    const VkMemoryDedicatedAllocateInfo dedicated = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, .pNext = &s_exported, .buffer = t->buffer};
    t->memory = allocate(&need, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                         t->is_dedicated ? (const void*)&dedicated : (const void*)&s_exported);
    t->memory_bytes = need.size;
    VK(s_vk.vkBindBufferMemory(s_vk.device, t->buffer, t->memory, 0));
    prepare(t);
}

static void destroy_thing(thing* t)
{
    s_vk.vkDestroyImage(s_vk.device, t->image, NULL);
    s_vk.vkDestroyBuffer(s_vk.device, t->buffer, NULL);
    s_vk.vkFreeMemory(s_vk.device, t->memory, NULL);
}

static int memory_descriptor(const thing* t)
{
    const VkMemoryGetFdInfoKHR get = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                      .memory = t->memory,
                                      .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    int descriptor = -1;
    VK(s_vk.vkGetMemoryFdKHR(s_vk.device, &get, &descriptor));
    return descriptor;
}

static sumi_import_desc describe(const thing* t, bool takes_previews)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_VULKAN_MEMORY;
    desc.device_uuid = s_vk.uuid;
    desc.fd = memory_descriptor(t);
    desc.width = t->width;
    desc.height = t->height;
    desc.format = t->format;
    desc.is_image = t->image != VK_NULL_HANDLE;
    desc.is_color_attachment = t->is_attachment;
    desc.is_dedicated = t->is_dedicated;
    desc.memory_bytes = t->memory_bytes;
    desc.offset = t->offset;
    desc.row_bytes = (int32_t)t->pitch;
    desc.takes_previews = takes_previews;
    return desc;
}

static sumi_external* import(sumi_engine* engine, const sumi_import_desc* desc)
{
    sumi_external* external = NULL;
    s_host.log[0] = '\0';
    CHECK_NUMBER(sumi_import(engine, desc, &external), SUMI_OK);
    if (external != NULL) return external;
    printf("  import refused: %s\n", s_host.log);
    if (desc->fd >= 0) close(desc->fd); // still ours
    return NULL;
}

static void print_thing(const thing* t, int pump)
{
    static const char* const s_formats[] = {"RGBA8", "RGB8", "RGB32F", "BGRA8", "RGBA16F"};
    printf("  %s of %d x %d, %s, %s%s, offset %zu, pitch %zu, %llu bytes of memory, pump %d: %s\n",
           t->image != VK_NULL_HANDLE ? "image" : "buffer", (int)t->width, (int)t->height, s_formats[t->format],
           t->is_dedicated ? "dedicated" : "not dedicated", t->is_attachment ? ", color attachment" : "", t->offset,
           t->pitch, (unsigned long long)t->memory_bytes, pump, s_host.log);
}

static sumi_external* import_thing(sumi_engine* engine, const thing* t, bool takes_previews)
{
    const sumi_import_desc desc = describe(t, takes_previews);
    return import(engine, &desc);
}

static int semaphore_descriptor(VkSemaphore semaphore)
{
    const VkSemaphoreGetFdInfoKHR get = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR,
                                         .semaphore = semaphore,
                                         .handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    int descriptor = -1;
    VK(s_vk.vkGetSemaphoreFdKHR(s_vk.device, &get, &descriptor));
    return descriptor;
}

static VkSemaphore make_semaphore(bool is_timeline)
{
    VkSemaphore semaphore = VK_NULL_HANDLE;
    const VkExportSemaphoreCreateInfo exported = {.sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO,
                                                  .handleTypes = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .pNext = &exported,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = is_timeline ? (const void*)&type : (const void*)&exported};
    VK(s_vk.vkCreateSemaphore(s_vk.device, &info, NULL, &semaphore));
    return semaphore;
}

static sumi_external* import_semaphore(sumi_engine* engine, VkSemaphore semaphore, bool is_timeline)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = is_timeline ? SUMI_EXTERNAL_VULKAN_TIMELINE : SUMI_EXTERNAL_VULKAN_SEMAPHORE;
    desc.device_uuid = s_vk.uuid;
    desc.fd = semaphore_descriptor(semaphore);
    return import(engine, &desc);
}

static uint64_t counter_of(VkSemaphore timeline)
{
    uint64_t value = 0;
    VK(s_vk.vkGetSemaphoreCounterValue(s_vk.device, timeline, &value));
    return value;
}

static void signal(VkSemaphore timeline, uint64_t value)
{
    const VkSemaphoreSignalInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = timeline, .value = value};
    VK(s_vk.vkSignalSemaphore(s_vk.device, &info));
}

// For two seconds at most.
static bool reaches(VkSemaphore timeline, uint64_t value)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &timeline,
                                      .pValues = &value};
    return s_vk.vkWaitSemaphores(s_vk.device, &info, 2000000000) == VK_SUCCESS;
}

static sumi_engine* vulkan_engine(sumi_pump pump, sumi_model** out_model)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.backend = SUMI_BACKEND_CUDA;
    desc.cuda.uuid = s_vk.uuid;
    desc.pump = pump;
    desc.max_slice_us = 100;
    sumi_engine* engine = open_engine(&desc, out_model);
    CHECK(engine != NULL);
    return engine;
}

// The image in memory of sumi, in this format. Returns its bytes, to be freed.
static unsigned char* draw_to_host(sumi_engine* engine, sumi_image_desc desc, sumi_format format, bool bottom_up)
{
    const size_t bytes = (size_t)desc.width * (size_t)desc.height * s_pixel_bytes[format];
    unsigned char* pixels = malloc(bytes);
    const sumi_target target = {.format = format, .host_memory = pixels, .bottom_up = bottom_up};
    sumi_image image;
    desc.targets = &target;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    return pixels;
}

static size_t differences(const unsigned char* a, const unsigned char* b, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += a[i] != b[i];
    return count;
}

// ---- Tests ----------------------------------------------------------------------------------------------------------

TEST(vulkan_on_a_gpu)
{
    if (!open_vulkan()) SKIP(s_why_not);
}

TEST(images_and_buffers_have_the_bytes_that_host_memory_has)
{
    static const int32_t s_sizes[][2] = {{16, 16}, {48, 32}, {80, 112}, {256, 256}};
    for (int pump = 0; pump < 2; pump++) {
        sumi_model* model;
        sumi_engine* engine = vulkan_engine(pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE, &model);
        if (engine == NULL) return;
        VkSemaphore timeline = make_semaphore(true);
        sumi_external* signals = import_semaphore(engine, timeline, true);
        uint64_t value = 0;
        for (size_t i = 0; i < sizeof s_sizes / sizeof *s_sizes; i++) {
            sumi_image_desc desc = small_image(model, &s_item);
            desc.width = s_sizes[i][0], desc.height = s_sizes[i][1];
            for (int format = 0; format < 5; format++) {
                const size_t row = (size_t)desc.width * s_pixel_bytes[format], bytes = row * (size_t)desc.height;
                unsigned char *got = malloc(bytes), *wanted[2];
                for (int up = 0; up < 2; up++) wanted[up] = draw_to_host(engine, desc, (sumi_format)format, up);
                for (int how = 0; how < 6;
                     how++) { // image: dedicated or not, attachment or not; buffer: dedicated or not
                    const bool is_image = how < 4;
                    if (is_image && (format == SUMI_FORMAT_RGB8 || format == SUMI_FORMAT_RGB32F)) continue;
                    thing t = {.width = desc.width,
                               .height = desc.height,
                               .format = (sumi_format)format,
                               .is_dedicated = how % 2 == 1,
                               .is_attachment = how == 2 || how == 3,
                               .offset = is_image ? 0 : 256,
                               .pitch = is_image ? 0 : row + 32};
                    if (is_image) make_image(&t);
                    else make_buffer(&t);
                    sumi_external* external = import_thing(engine, &t, false);
                    if (external == NULL) { // nothing would ever be signalled
                        print_thing(&t, pump);
                        destroy_thing(&t);
                        continue;
                    }
                    const bool bottom_up = how % 3 == 2;
                    const sumi_target target = {.format = (sumi_format)format,
                                                .external = external,
                                                .bottom_up = bottom_up,
                                                .signal = {signals, ++value}};
                    sumi_image image;
                    desc.targets = &target;
                    const int errors = t_errors;
                    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
                    CHECK(image.pixels == NULL && image.width == desc.width);
                    CHECK(reaches(timeline, value));
                    read_back(&t, got);
                    CHECK_NUMBER((int)differences(got, wanted[bottom_up], bytes), 0);
                    if (t_errors > errors) print_thing(&t, pump);
                    sumi_external_release(external);
                    destroy_thing(&t);
                }
                desc.targets = NULL;
                free(got), free(wanted[0]), free(wanted[1]);
            }
        }
        sumi_external_release(signals);
        close_engine(engine);
        s_vk.vkDestroySemaphore(s_vk.device, timeline, NULL);
    }
}

TEST(a_copy_lies_between_its_wait_and_its_signal)
{
    enum { SIZE = 64, BYTES = SIZE * SIZE * 4, ROUNDS = 20 };
    sumi_model* model;
    sumi_engine* engine = vulkan_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    thing t = {.width = SIZE, .height = SIZE};
    make_image(&t);
    VkSemaphore drawn = make_semaphore(true), ready = make_semaphore(true);
    sumi_external *external = import_thing(engine, &t, false), *wait = import_semaphore(engine, drawn, true),
                  *signals = import_semaphore(engine, ready, true);
    static unsigned char s_before[BYTES], s_got[BYTES];
    read_back(&t, s_before);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        sumi_image_item item = {.text = "a red fox", .seed = round};
        sumi_image_desc desc = small_image(model, &item);
        desc.width = desc.height = SIZE;
        unsigned char* wanted = draw_to_host(engine, desc, SUMI_FORMAT_RGBA8, false);
        const sumi_target target = {.external = external, .wait = {wait, 2 * round}, .signal = {signals, 3 * round}};
        desc.targets = &target;
        sumi_image image;
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK); // the fetch does not wait
        sumi_sleep_us(2000);
        CHECK_NUMBER((int)counter_of(ready), 3 * (int)(round - 1));
        read_back(&t, s_got);
        CHECK_NUMBER((int)differences(s_got, s_before, BYTES), 0);
        signal(drawn, 2 * round);
        CHECK(reaches(ready, 3 * round));
        read_back(&t, s_got);
        CHECK_NUMBER((int)differences(s_got, wanted, BYTES), 0);
        memcpy(s_before, s_got, BYTES);
        free(wanted);
    }
    close_engine(engine); // with all three
    destroy_thing(&t);
    s_vk.vkDestroySemaphore(s_vk.device, drawn, NULL);
    s_vk.vkDestroySemaphore(s_vk.device, ready, NULL);
}

TEST(binary_semaphores_alternate)
{
    enum { SIZE = 64, BYTES = SIZE * SIZE * 4, ROUNDS = 10 };
    sumi_model* model;
    sumi_engine* engine = vulkan_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    thing t = {.width = SIZE, .height = SIZE, .is_dedicated = true};
    make_image(&t);
    VkSemaphore drawn = make_semaphore(false), ready = make_semaphore(false);
    sumi_external *external = import_thing(engine, &t, false), *wait = import_semaphore(engine, drawn, false),
                  *signals = import_semaphore(engine, ready, false);
    static unsigned char s_got[BYTES];
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        sumi_image_item item = {.text = "a lighthouse", .seed = round};
        sumi_image_desc desc = small_image(model, &item);
        desc.width = desc.height = SIZE;
        unsigned char* wanted = draw_to_host(engine, desc, SUMI_FORMAT_RGBA8, false);
        const sumi_target target = {.external = external, .wait = {wait, 0}, .signal = {signals, 0}};
        desc.targets = &target;
        sumi_image image;
        const VkSubmitInfo gives = {
            .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .signalSemaphoreCount = 1, .pSignalSemaphores = &drawn};
        VK(s_vk.vkQueueSubmit(s_vk.queue, 1, &gives, VK_NULL_HANDLE));
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        const VkSubmitInfo takes = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                    .waitSemaphoreCount = 1,
                                    .pWaitSemaphores = &ready,
                                    .pWaitDstStageMask =
                                        (const VkPipelineStageFlags[]){VK_PIPELINE_STAGE_ALL_COMMANDS_BIT}};
        VK(s_vk.vkQueueSubmit(s_vk.queue, 1, &takes, VK_NULL_HANDLE));
        read_back(&t, s_got);
        CHECK_NUMBER((int)differences(s_got, wanted, BYTES), 0);
        free(wanted);
    }
    close_engine(engine);
    destroy_thing(&t);
    s_vk.vkDestroySemaphore(s_vk.device, drawn, NULL);
    s_vk.vkDestroySemaphore(s_vk.device, ready, NULL);
}

TEST(previews_are_shown_or_dropped)
{
    enum { SIZE = 128, SMALL = SIZE / 8, BYTES = SMALL * SMALL * 4 };
    sumi_model* model;
    sumi_engine* engine = vulkan_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    thing t = {.width = SMALL, .height = SMALL, .format = SUMI_FORMAT_BGRA8};
    make_image(&t);
    VkSemaphore drawn = make_semaphore(true), ready = make_semaphore(true);
    sumi_external *external = import_thing(engine, &t, true), *wait = import_semaphore(engine, drawn, true),
                  *signals = import_semaphore(engine, ready, true);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = SIZE;
    desc.preview_every = 1;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    uint32_t seen = 0;
    uint64_t shown = 0;
    int dropped = 0;
    static unsigned char s_got[BYTES], s_wanted[BYTES];
    for (int i = 0; i < 100000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++) {
        sumi_engine_update(engine, 500);
        const uint32_t version = sumi_job_poll(engine, job).preview_version;
        if (version == seen) continue;
        seen = version;
        sumi_image preview;
        CHECK_NUMBER(sumi_job_preview(engine, job, 0, s_wanted, sizeof s_wanted, &preview), SUMI_OK);
        const sumi_target target = {.format = SUMI_FORMAT_BGRA8,
                                    .external = external,
                                    .wait = {wait, shown + 1},
                                    .signal = {signals, shown + 1}};
        CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_OK);
        CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_BUSY); // it waits for `drawn`
        dropped++;
        CHECK(counter_of(ready) == shown);
        signal(drawn, ++shown);
        CHECK(reaches(ready, shown));
        read_back(&t, s_got);
        for (size_t p = 0; p < BYTES; p += 4) {
            const unsigned char red = s_wanted[p];
            s_wanted[p] = s_wanted[p + 2], s_wanted[p + 2] = red;
        }
        CHECK_NUMBER((int)differences(s_got, s_wanted, BYTES), 0);
    }
    printf("  %d previews shown, as many dropped\n", dropped);
    CHECK(shown >= 1);
    sumi_job_discard(engine, job);
    close_engine(engine);
    destroy_thing(&t);
    s_vk.vkDestroySemaphore(s_vk.device, drawn, NULL);
    s_vk.vkDestroySemaphore(s_vk.device, ready, NULL);
}

TEST(imports_that_cannot_be_are_refused)
{
    sumi_model* model;
    sumi_engine* engine = vulkan_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    static const uint8_t s_other[16] = {1};
    thing t = {.width = 64, .height = 64};
    make_image(&t);
    VkSemaphore timeline = make_semaphore(true);
    // must: the engine's own refusals; else the driver may also accept
#define BAD(what, change, must)                                                                                        \
    do {                                                                                                               \
        sumi_import_desc d = describe(&t, false);                                                                      \
        const int descriptor = d.fd;                                                                                   \
        sumi_external* external = NULL;                                                                                \
        s_host.log[0] = '\0';                                                                                          \
        change;                                                                                                        \
        const sumi_result result = sumi_import(engine, &d, &external);                                                 \
        printf("  %s: %d, %s\n", what, (int)result, s_host.log);                                                       \
        if (must) CHECK(result == SUMI_INVALID_ARGUMENT || result == SUMI_NOT_SUPPORTED);                              \
        CHECK((result == SUMI_OK) == (external != NULL));                                                              \
        if (result != SUMI_OK) CHECK(fcntl(descriptor, F_GETFD) != -1 && s_host.log[0] != '\0');                       \
        sumi_external_release(external);                                                                               \
        if (fcntl(descriptor, F_GETFD) != -1) close(descriptor);                                                       \
    } while (0)
    BAD("another GPU", d.device_uuid = s_other, true);
    BAD("no GPU", d.device_uuid = NULL, true);
    BAD("three channels", (d.is_image = true, d.format = SUMI_FORMAT_RGB8), true);
    BAD("memory that is too small", d.width = 4096, true);
    const int null_device = open("/dev/null", O_RDONLY);
    BAD("a descriptor of no memory", d.fd = null_device, true);
    CHECK(fcntl(null_device, F_GETFD) != -1);
    BAD("a closed descriptor", (close(null_device), d.fd = null_device), true);
    const int semaphore = semaphore_descriptor(timeline);
    BAD("a timeline as memory", d.fd = semaphore, false);
    if (fcntl(semaphore, F_GETFD) != -1) close(semaphore);
    BAD("memory as a timeline", (d.kind = SUMI_EXTERNAL_VULKAN_TIMELINE, d.width = d.height = 0, d.memory_bytes = 0),
        false);
    BAD("a handle of Windows", (d.fd = -1, d.handle = &t), true);
    BAD("Direct3D 12", (d.kind = SUMI_EXTERNAL_D3D12_RESOURCE, d.fd = -1, d.handle = &t), true);
    BAD("another size than allocated", d.memory_bytes += 65536, false);
#undef BAD
    const sumi_image_desc desc = small_image(model, &s_item);
    CHECK(draw_hash(engine, &desc) != 0); // the engine is well
    CHECK_NUMBER(sumi_job_poll(engine, (sumi_job){0}).state, SUMI_JOB_NONE);
    close_engine(engine);
    destroy_thing(&t);
    s_vk.vkDestroySemaphore(s_vk.device, timeline, NULL);
}

static VkSemaphore s_late;
static void* signal_late(void* context)
{
    (void)context;
    sumi_sleep_us(100000);
    signal(s_late, 1);
    return NULL;
}

TEST(releases_wait_for_copies_in_flight)
{
    enum { SIZE = 64, BYTES = SIZE * SIZE * 4 };
    for (int which = 0; which < 4; which++) { // the image, the semaphore to wait for, the one to signal, the engine
        sumi_model* model;
        sumi_engine* engine = vulkan_engine(SUMI_PUMP_UPDATE, &model);
        if (engine == NULL) return;
        thing t = {.width = SIZE, .height = SIZE};
        make_image(&t);
        VkSemaphore ready = make_semaphore(true);
        s_late = make_semaphore(true);
        sumi_external* all[3] = {import_thing(engine, &t, false), import_semaphore(engine, s_late, true),
                                 import_semaphore(engine, ready, true)};
        sumi_image_desc desc = small_image(model, &s_item);
        desc.width = desc.height = SIZE;
        unsigned char* wanted = draw_to_host(engine, desc, SUMI_FORMAT_RGBA8, false);
        const sumi_target target = {.external = all[0], .wait = {all[1], 1}, .signal = {all[2], 1}};
        desc.targets = &target;
        sumi_image image;
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        pthread_t thread;
        const uint64_t begin = sumi_clock_ns();
        CHECK(pthread_create(&thread, NULL, signal_late, NULL) == 0);
        if (which < 3) sumi_external_release(all[which]);
        else close_engine(engine);
        CHECK(sumi_clock_ns() - begin > 50000000); // it has waited
        CHECK(counter_of(ready) == 1);
        static unsigned char s_got[BYTES];
        read_back(&t, s_got);
        CHECK_NUMBER((int)differences(s_got, wanted, BYTES), 0);
        CHECK(pthread_join(thread, NULL) == 0);
        if (which < 3) close_engine(engine);
        free(wanted);
        destroy_thing(&t);
        s_vk.vkDestroySemaphore(s_vk.device, s_late, NULL);
        s_vk.vkDestroySemaphore(s_vk.device, ready, NULL);
    }
}

static int open_descriptors(void)
{
    int count = 0;
    for (int descriptor = 0; descriptor < 4096; descriptor++) count += fcntl(descriptor, F_GETFD) != -1;
    return count;
}

// The same memory is imported again and again; Vulkan's part may go before sumi's. Drivers hold memory and file
// descriptors of their own, and more of both at times. What imports kept would be missing behind every 25 of them, so the
// least that is missing tells.
TEST(imports_give_their_memory_back)
{
    struct CUctx_st* primary = NULL;
    CHECK(s_vk.retain(&primary, 0) == 0 && s_vk.set_current(primary) == 0);
    sumi_model* model;
    sumi_engine* engine = vulkan_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    enum { SIZE = 1024, ROUNDS = 4, IMPORTS = 25 };
    thing image = {.width = SIZE, .height = SIZE}, buffer = {.width = SIZE, .height = SIZE, .pitch = SIZE * 4};
    make_image(&image);
    make_buffer(&buffer);
    VkSemaphore timeline = make_semaphore(true);
    const uint64_t held = sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_IMAGE];
    size_t before = 0, after = 0, total = 0;
    int64_t least = INT64_MAX;
    int opened_before = 0, least_opened = INT_MAX;
    for (int i = 0; i <= ROUNDS * IMPORTS; i++) {
        sumi_external* external = import_thing(engine, i % 2 == 0 ? &image : &buffer, true);
        sumi_external* semaphore = import_semaphore(engine, timeline, true);
        CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_IMAGE], held + ((uint64_t)4 << 20));
        sumi_external_release(semaphore);
        sumi_external_release(external);
        if (i % IMPORTS != 0) continue;
        CHECK(s_vk.memory_info(&after, &total) == 0);
        const int64_t missing = (int64_t)before - (int64_t)after;
        if (i > 0 && missing < least) least = missing; // the first import makes what stays
        before = after;
        const int opened = open_descriptors();
        if (i > 0 && opened - opened_before < least_opened) least_opened = opened - opened_before;
        opened_before = opened;
    }
    printf("  missing behind %d imports: %lld MiB at least\n", (int)IMPORTS, (long long)least / 1048576);
    CHECK(least < 8 << 20);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_IMAGE], held);
    printf("  %d descriptors are open, %d more behind %d imports at least\n", opened_before, least_opened,
           (int)IMPORTS);
    CHECK(least_opened < IMPORTS / 4); // one of each buffer would be 12, one of each import 25
    sumi_external* external = import_thing(engine, &image, false);
    destroy_thing(&image);
    destroy_thing(&buffer);
    s_vk.vkDestroySemaphore(s_vk.device, timeline, NULL);
    const sumi_image_desc desc = small_image(model, &s_item);
    CHECK(draw_hash(engine, &desc) != 0);
    sumi_external_release(external);
    close_engine(engine);
    CHECK(s_vk.set_current(NULL) == 0);
}

TEST(validation_has_nothing_to_say)
{
    if (s_messages < 0) SKIP("the validation layer is not installed");
    CHECK_NUMBER(s_messages, 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0); // a driver that crashes takes nothing along that was said
    const char* filter = t_filter;
    t_filter = NULL;
    RUN(vulkan_on_a_gpu);
    if (t_skipped > 0) TEST_END();
    t_filter = filter;
    RUN(images_and_buffers_have_the_bytes_that_host_memory_has);
    RUN(a_copy_lies_between_its_wait_and_its_signal);
    RUN(binary_semaphores_alternate);
    RUN(previews_are_shown_or_dropped);
    RUN(imports_that_cannot_be_are_refused);
    RUN(releases_wait_for_copies_in_flight);
    RUN(imports_give_their_memory_back);
    close_vulkan();
    RUN(validation_has_nothing_to_say);
    TEST_END();
}
#else
TEST(vulkan_on_a_gpu) { SKIP("built without the CUDA backend, or without Vulkan's headers (Debian: libvulkan-dev)"); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(vulkan_on_a_gpu);
    TEST_END();
}
#endif
