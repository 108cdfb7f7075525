// A host that draws with Vulkan, without a window: previews and the picture are sampled by its render pass, and no
// pixel goes through host memory.
//     vulkan MODEL "a lighthouse at dusk, ink wash" [out.png] [--copy]
//
//   Vulkan                                                   sumi
//   VkImage, exported memory        -- file descriptor -->   sumi_import: external
//   timeline `ready`                -- file descriptor -->   sumi_import: what sumi signals when an image is there
//   timeline `drawn`                -- file descriptor -->   sumi_import: what sumi waits for before it writes
//
// Image n waits for `drawn` n - 1 and signals `ready` n. Each frame looks at the counter of `ready`, samples the image if
// there is a new one and signals `drawn` n; otherwise the screen stays as it is. So neither side ever waits for the other. Where the memory cannot be shared (the CPU backend, Vulkan on another
// device, --copy) the pixels are uploaded from host memory instead. At the end the screen is read back and compared with
// the same picture in host memory: not one bit may differ. The Khronos validation layer is used where it is installed.
#include "picture.h"
#include "shaders.h"
#include "system.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sumi.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

static void die(const char* what, const char* why)
{
    fprintf(stderr, "vulkan: %s: %s\n", what, why);
    exit(1);
}

static void skip(const char* why)
{
    printf("skipped: %s\n", why);
    exit(0);
}

static void vk_or_die(VkResult result, const char* what)
{
    char why[32];
    snprintf(why, sizeof why, "VkResult %d", (int)result);
    if (result != VK_SUCCESS) die(what, why);
}

static void sumi_or_die(sumi_result result, const char* what)
{
    if (result != SUMI_OK) die(what, sumi_result_text(result));
}

// ---- Vulkan's functions ---------------------------------------------------------------------------------------------
// The loader is opened at run time, so the program starts on machines without it.

#define WITHOUT_INSTANCE(X)                                                                                            \
    X(vkCreateInstance)                                                                                                \
    X(vkEnumerateInstanceLayerProperties)                                                                              \
    X(vkEnumerateInstanceVersion)
#define OF_INSTANCE(X)                                                                                                 \
    X(vkDestroyInstance)                                                                                               \
    X(vkEnumeratePhysicalDevices)                                                                                      \
    X(vkGetPhysicalDeviceProperties2)                                                                                  \
    X(vkGetPhysicalDeviceQueueFamilyProperties)                                                                        \
    X(vkGetPhysicalDeviceMemoryProperties)                                                                             \
    X(vkGetPhysicalDeviceFeatures2)                                                                                    \
    X(vkEnumerateDeviceExtensionProperties)                                                                            \
    X(vkCreateDevice)                                                                                                  \
    X(vkGetDeviceProcAddr)
#define OF_DEVICE(X)                                                                                                   \
    X(vkDestroyDevice)                                                                                                 \
    X(vkGetDeviceQueue)                                                                                                \
    X(vkDeviceWaitIdle)                                                                                                \
    X(vkCreateImage)                                                                                                   \
    X(vkDestroyImage)                                                                                                  \
    X(vkGetImageMemoryRequirements)                                                                                    \
    X(vkAllocateMemory)                                                                                                \
    X(vkFreeMemory)                                                                                                    \
    X(vkBindImageMemory)                                                                                               \
    X(vkCreateImageView)                                                                                               \
    X(vkDestroyImageView)                                                                                              \
    X(vkCreateBuffer)                                                                                                  \
    X(vkDestroyBuffer)                                                                                                 \
    X(vkGetBufferMemoryRequirements)                                                                                   \
    X(vkBindBufferMemory)                                                                                              \
    X(vkMapMemory)                                                                                                     \
    X(vkCreateSemaphore)                                                                                               \
    X(vkDestroySemaphore)                                                                                              \
    X(vkGetSemaphoreCounterValue)                                                                                      \
    X(vkCreateCommandPool)                                                                                             \
    X(vkDestroyCommandPool)                                                                                            \
    X(vkAllocateCommandBuffers)                                                                                        \
    X(vkBeginCommandBuffer)                                                                                            \
    X(vkEndCommandBuffer)                                                                                              \
    X(vkCmdPipelineBarrier)                                                                                            \
    X(vkCmdClearColorImage)                                                                                            \
    X(vkCmdCopyBufferToImage)                                                                                          \
    X(vkCmdCopyImageToBuffer)                                                                                          \
    X(vkCmdBeginRenderPass)                                                                                            \
    X(vkCmdEndRenderPass)                                                                                              \
    X(vkCmdBindPipeline)                                                                                               \
    X(vkCmdBindDescriptorSets)                                                                                         \
    X(vkCmdPushConstants)                                                                                              \
    X(vkCmdDraw)                                                                                                       \
    X(vkCreateFence)                                                                                                   \
    X(vkDestroyFence)                                                                                                  \
    X(vkWaitForFences)                                                                                                 \
    X(vkResetFences)                                                                                                   \
    X(vkQueueSubmit)                                                                                                   \
    X(vkCreateSampler)                                                                                                 \
    X(vkDestroySampler)                                                                                                \
    X(vkCreateDescriptorSetLayout)                                                                                     \
    X(vkDestroyDescriptorSetLayout)                                                                                    \
    X(vkCreateDescriptorPool)                                                                                          \
    X(vkDestroyDescriptorPool)                                                                                         \
    X(vkAllocateDescriptorSets)                                                                                        \
    X(vkUpdateDescriptorSets)                                                                                          \
    X(vkCreatePipelineLayout)                                                                                          \
    X(vkDestroyPipelineLayout)                                                                                         \
    X(vkCreateShaderModule)                                                                                            \
    X(vkDestroyShaderModule)                                                                                           \
    X(vkCreateGraphicsPipelines)                                                                                       \
    X(vkDestroyPipeline)                                                                                               \
    X(vkCreateRenderPass)                                                                                              \
    X(vkDestroyRenderPass)                                                                                             \
    X(vkCreateFramebuffer)                                                                                             \
    X(vkDestroyFramebuffer)
#define OF_SHARING(X) X(vkGetMemoryFdKHR) X(vkGetSemaphoreFdKHR) // NULL where nothing can be shared

static struct {
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    PFN_vkCreateDebugUtilsMessengerEXT vkCreateDebugUtilsMessengerEXT;
    PFN_vkDestroyDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT;
#define MEMBER(name) PFN_##name name;
    WITHOUT_INSTANCE(MEMBER) OF_INSTANCE(MEMBER) OF_DEVICE(MEMBER) OF_SHARING(MEMBER)
#undef MEMBER
} s_vk;

typedef struct host {
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger;
    int messages; // of the validation layer; -1: it is not installed
    VkPhysicalDevice physical;
    VkPhysicalDeviceMemoryProperties memory;
    uint8_t uuid[VK_UUID_SIZE];
    bool shares; // with sumi: the same GPU, and both can
    VkDevice device;
    uint32_t family;
    VkQueue queue;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkFence fence;
    VkSampler sampler;
    VkDescriptorSetLayout set_layout;
    VkDescriptorPool set_pool;
    VkPipelineLayout layout;
    VkRenderPass pass;
    VkPipeline pipeline;
    int32_t width, height;
    VkImage screen;
    VkDeviceMemory screen_memory;
    VkImageView screen_view;
    VkFramebuffer framebuffer;
    VkBuffer readback;
    VkDeviceMemory readback_memory;
    void* readback_pixels;
} host;

// An image that sumi writes and the render pass samples.
typedef struct shown_image {
    int32_t width, height;
    VkImage image;
    VkDeviceMemory memory;
    VkDeviceSize bytes; // of the memory
    VkImageView view;
    VkDescriptorSet set;
    // Shared: images are numbered. ready_value: the newest that sumi was told to write; seen_value: the newest that was
    // there; drawn_value: the newest that the queue was told to draw.
    VkSemaphore ready, drawn;
    uint64_t ready_value, drawn_value, seen_value;
    sumi_external *external, *ready_import, *drawn_import;
    // Not shared: pixels on their way.
    VkBuffer upload;
    VkDeviceMemory upload_memory;
    void* pixels;
    bool is_new;
} shown_image;

static VKAPI_ATTR VkBool32 VKAPI_CALL count_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                    VkDebugUtilsMessageTypeFlagsEXT types,
                                                    const VkDebugUtilsMessengerCallbackDataEXT* data, void* user_data)
{
    (void)severity, (void)types;
    ++*(int*)user_data;
    fprintf(stderr, "vulkan: validation: %s\n", data->pMessage);
    return VK_FALSE;
}

static PFN_vkVoidFunction find(VkInstance instance, const char* name)
{
    const PFN_vkVoidFunction found = s_vk.vkGetInstanceProcAddr(instance, name);
    if (found == NULL) die("the Vulkan loader lacks a function", name);
    return found;
}

static bool has_validation(void)
{
    VkLayerProperties layers[64];
    uint32_t count = 64;
    s_vk.vkEnumerateInstanceLayerProperties(&count, layers);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(layers[i].layerName, "VK_LAYER_KHRONOS_validation") == 0) return true;
    }
    return false;
}

static void open_instance(host* h)
{
    void* library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) skip("there is no Vulkan loader (libvulkan.so.1; Debian: libvulkan1)");
    void* symbol = dlsym(library, "vkGetInstanceProcAddr");
    memcpy(&s_vk.vkGetInstanceProcAddr, &symbol, sizeof symbol);
    if (symbol == NULL) skip("libvulkan.so.1 is no Vulkan loader");
#define FIND(name) s_vk.name = (PFN_##name)find(NULL, #name);
    WITHOUT_INSTANCE(FIND)
#undef FIND
    uint32_t version = 0;
    s_vk.vkEnumerateInstanceVersion(&version);
    if (version < VK_API_VERSION_1_2) skip("the Vulkan loader is older than 1.2");
    const bool validates = has_validation();
    h->messages = validates ? 0 : -1;
    const VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
        .pfnUserCallback = count_message,
        .pUserData = &h->messages};
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .pApplicationName = "sumi's Vulkan sample",
                                           .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pNext = validates ? &messenger : NULL,
                                       .pApplicationInfo = &application,
                                       .enabledLayerCount = validates,
                                       .ppEnabledLayerNames = (const char*[]){"VK_LAYER_KHRONOS_validation"},
                                       .enabledExtensionCount = validates,
                                       .ppEnabledExtensionNames = (const char*[]){VK_EXT_DEBUG_UTILS_EXTENSION_NAME}};
    const VkResult result = s_vk.vkCreateInstance(&info, NULL, &h->instance);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) skip("there is no Vulkan driver (Debian: mesa-vulkan-drivers)");
    vk_or_die(result, "vkCreateInstance");
#define FIND(name) s_vk.name = (PFN_##name)find(h->instance, #name);
    OF_INSTANCE(FIND)
#undef FIND
    if (!validates) return;
    s_vk.vkCreateDebugUtilsMessengerEXT =
        (PFN_vkCreateDebugUtilsMessengerEXT)find(h->instance, "vkCreateDebugUtilsMessengerEXT");
    s_vk.vkDestroyDebugUtilsMessengerEXT =
        (PFN_vkDestroyDebugUtilsMessengerEXT)find(h->instance, "vkDestroyDebugUtilsMessengerEXT");
    vk_or_die(s_vk.vkCreateDebugUtilsMessengerEXT(h->instance, &messenger, NULL, &h->messenger), "a messenger");
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

// The first family that draws. UINT32_MAX: none.
static uint32_t graphics_family(VkPhysicalDevice device)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = 32;
    s_vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        if (families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT) return i;
    }
    return UINT32_MAX;
}

// Chooses sumi's GPU if Vulkan has it, else the first device that draws.
static void choose_device(host* h, const uint8_t* sumi_uuid, bool copies)
{
    VkPhysicalDevice devices[16];
    uint32_t count = 16;
    s_vk.vkEnumeratePhysicalDevices(h->instance, &count, devices);
    for (uint32_t i = 0; i < count; i++) {
        VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
        VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &features};
        VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
        VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                                  .pNext = &id};
        s_vk.vkGetPhysicalDeviceProperties2(devices[i], &properties);
        if (graphics_family(devices[i]) == UINT32_MAX || properties.properties.apiVersion < VK_API_VERSION_1_2)
            continue;
        s_vk.vkGetPhysicalDeviceFeatures2(devices[i], &all);
        // [excerpt vulkan_device]
        const bool is_sumis = memcmp(id.deviceUUID, sumi_uuid, VK_UUID_SIZE) == 0; // sumi_engine_info.device_uuid
        const bool can_share = features.timelineSemaphore
                            && has_extension(devices[i], VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME)
                            && has_extension(devices[i], VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
        // [end]
        if (h->physical != VK_NULL_HANDLE && !(is_sumis && can_share)) continue;
        h->physical = devices[i];
        h->shares = is_sumis && can_share && !copies;
        memcpy(h->uuid, id.deviceUUID, VK_UUID_SIZE);
        if (!is_sumis || !can_share) continue;
        break;
    }
    if (h->physical == VK_NULL_HANDLE) skip("Vulkan has no device of version 1.2 that draws");
    VkPhysicalDeviceProperties2 chosen = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    s_vk.vkGetPhysicalDeviceProperties2(h->physical, &chosen);
    s_vk.vkGetPhysicalDeviceMemoryProperties(h->physical, &h->memory);
    h->family = graphics_family(h->physical);
    printf("Vulkan draws with %s, images are %s\n", chosen.properties.deviceName,
           h->shares ? "shared" : "copied through host memory");
}

static void open_device(host* h)
{
    VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                                 .timelineSemaphore = h->shares};
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = h->family,
                                           .queueCount = 1,
                                           .pQueuePriorities = (const float[]){1.0f}};
    const VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &features,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
        .enabledExtensionCount = h->shares ? 2 : 0,
        .ppEnabledExtensionNames =
            (const char*[]){VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME}};
    vk_or_die(s_vk.vkCreateDevice(h->physical, &info, NULL, &h->device), "vkCreateDevice");
#define FIND(name)                                                                                                     \
    s_vk.name = (PFN_##name)s_vk.vkGetDeviceProcAddr(h->device, #name);                                                \
    if (s_vk.name == NULL) die("the Vulkan device lacks a function", #name);
    OF_DEVICE(FIND)
    if (h->shares) { OF_SHARING(FIND) }
#undef FIND
    s_vk.vkGetDeviceQueue(h->device, h->family, 0, &h->queue);
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = h->family};
    vk_or_die(s_vk.vkCreateCommandPool(h->device, &pool, NULL, &h->pool), "a command pool");
    const VkCommandBufferAllocateInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = h->pool, .commandBufferCount = 1};
    vk_or_die(s_vk.vkAllocateCommandBuffers(h->device, &commands, &h->commands), "a command buffer");
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    vk_or_die(s_vk.vkCreateFence(h->device, &fence, NULL, &h->fence), "a fence");
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

static VkDeviceMemory allocate(const host* h, const VkMemoryRequirements* need, VkMemoryPropertyFlags wanted,
                               const void* next)
{
    VkDeviceMemory memory;
    uint32_t type = 0;
    while (type < h->memory.memoryTypeCount
           && (!(need->memoryTypeBits & 1u << type) || (h->memory.memoryTypes[type].propertyFlags & wanted) != wanted))
        type++;
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = next,
                                       .allocationSize = need->size,
                                       .memoryTypeIndex = type};
    if (type == h->memory.memoryTypeCount) die("memory", "no type fits");
    vk_or_die(s_vk.vkAllocateMemory(h->device, &info, NULL, &memory), "vkAllocateMemory");
    return memory;
}

static void* make_buffer(const host* h, VkDeviceSize bytes, VkBufferUsageFlags usage, VkBuffer* out_buffer,
                         VkDeviceMemory* out_memory)
{
    VkMemoryRequirements need;
    void* mapped;
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes, .usage = usage};
    vk_or_die(s_vk.vkCreateBuffer(h->device, &info, NULL, out_buffer), "a buffer");
    s_vk.vkGetBufferMemoryRequirements(h->device, *out_buffer, &need);
    *out_memory = allocate(h, &need, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, NULL);
    vk_or_die(s_vk.vkBindBufferMemory(h->device, *out_buffer, *out_memory, 0), "the memory of a buffer");
    vk_or_die(s_vk.vkMapMemory(h->device, *out_memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
    return mapped;
}

// An RGBA8 image in memory of its own, which is exported if it is shared. Returns the size of the memory.
static VkDeviceSize make_image(const host* h, int32_t width, int32_t height, VkImageUsageFlags usage, bool is_shared,
                               VkImage* out_image, VkDeviceMemory* out_memory, VkImageView* out_view)
{
    const VkExternalMemoryImageCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMAGE_CREATE_INFO,
                                                      .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                    .pNext = is_shared ? &external : NULL,
                                    .imageType = VK_IMAGE_TYPE_2D,
                                    .format = VK_FORMAT_R8G8B8A8_UNORM,
                                    .extent = {(uint32_t)width, (uint32_t)height, 1},
                                    .mipLevels = 1,
                                    .arrayLayers = 1,
                                    .samples = VK_SAMPLE_COUNT_1_BIT,
                                    .usage = usage};
    vk_or_die(s_vk.vkCreateImage(h->device, &info, NULL, out_image), "an image");
    VkMemoryRequirements need;
    s_vk.vkGetImageMemoryRequirements(h->device, *out_image, &need);
    const VkExportMemoryAllocateInfo exported = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                                 .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkMemoryDedicatedAllocateInfo dedicated = {.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO,
                                                     .pNext = is_shared ? &exported : NULL,
                                                     .image = *out_image};
    *out_memory = allocate(h, &need, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, &dedicated);
    vk_or_die(s_vk.vkBindImageMemory(h->device, *out_image, *out_memory, 0), "the memory of an image");
    const VkImageViewCreateInfo view = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
        .image = *out_image,
        .viewType = VK_IMAGE_VIEW_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .subresourceRange = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .levelCount = 1, .layerCount = 1}};
    vk_or_die(s_vk.vkCreateImageView(h->device, &view, NULL, out_view), "a view of an image");
    return need.size;
}

// ---- Commands -------------------------------------------------------------------------------------------------------

static void begin_commands(const host* h)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    vk_or_die(s_vk.vkBeginCommandBuffer(h->commands, &info), "vkBeginCommandBuffer");
}

// Submits and, to keep the sample short, waits: a frame is in flight at a time.
static void submit_commands(const host* h, shown_image* image)
{
    vk_or_die(s_vk.vkEndCommandBuffer(h->commands), "vkEndCommandBuffer");
    // `ready` has this value already, so the queue does not wait either. `drawn` lets sumi write the next image.
    const VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                  .waitSemaphoreValueCount = 1,
                                                  .pWaitSemaphoreValues = &image->seen_value,
                                                  .signalSemaphoreValueCount = 1,
                                                  .pSignalSemaphoreValues = &image->drawn_value};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = image->external ? &values : NULL,
                               .waitSemaphoreCount = image->external ? 1 : 0,
                               .pWaitSemaphores = &image->ready,
                               .pWaitDstStageMask = (const VkPipelineStageFlags[]){VK_PIPELINE_STAGE_ALL_COMMANDS_BIT},
                               .commandBufferCount = 1,
                               .pCommandBuffers = &h->commands,
                               .signalSemaphoreCount = image->external ? 1 : 0,
                               .pSignalSemaphores = &image->drawn};
    vk_or_die(s_vk.vkQueueSubmit(h->queue, 1, &info, h->fence), "vkQueueSubmit");
    vk_or_die(s_vk.vkWaitForFences(h->device, 1, &h->fence, VK_TRUE, UINT64_MAX), "vkWaitForFences");
    vk_or_die(s_vk.vkResetFences(h->device, 1, &h->fence), "vkResetFences");
}

typedef struct change {
    VkImageLayout from, to;
    VkAccessFlags before, after;
    uint32_t from_family, to_family;
} change;

static void change_image(const host* h, VkImage image, const change* c)
{
    const bool moves = c->from_family != c->to_family;
    const VkImageMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
        .srcAccessMask = c->before,
        .dstAccessMask = c->after,
        .oldLayout = c->from,
        .newLayout = c->to,
        .srcQueueFamilyIndex = moves ? c->from_family : VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = moves ? c->to_family : VK_QUEUE_FAMILY_IGNORED,
        .image = image,
        .subresourceRange = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .levelCount = 1, .layerCount = 1}};
    s_vk.vkCmdPipelineBarrier(h->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 0,
                              NULL, 0, NULL, 1, &barrier);
}

// ---- The screen and its pipeline ------------------------------------------------------------------------------------

static VkShaderModule make_shader(const host* h, const uint32_t* code, size_t bytes)
{
    VkShaderModule shader;
    const VkShaderModuleCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
    vk_or_die(s_vk.vkCreateShaderModule(h->device, &info, NULL, &shader), "a shader");
    return shader;
}

static void make_layouts(host* h)
{
    const VkSamplerCreateInfo sampler = {.sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO};
    vk_or_die(s_vk.vkCreateSampler(h->device, &sampler, NULL, &h->sampler), "a sampler");
    const VkDescriptorSetLayoutBinding binding = {.descriptorType = VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER,
                                                  .descriptorCount = 1,
                                                  .stageFlags = VK_SHADER_STAGE_FRAGMENT_BIT};
    const VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = 1, .pBindings = &binding};
    vk_or_die(s_vk.vkCreateDescriptorSetLayout(h->device, &set, NULL, &h->set_layout), "a set layout");
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, 2};
    const VkDescriptorPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, .maxSets = 2, .poolSizeCount = 1, .pPoolSizes = &size};
    vk_or_die(s_vk.vkCreateDescriptorPool(h->device, &pool, NULL, &h->set_pool), "a descriptor pool");
    const VkPushConstantRange constants = {VK_SHADER_STAGE_FRAGMENT_BIT, 0, 2 * sizeof(int32_t)};
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .setLayoutCount = 1,
                                               .pSetLayouts = &h->set_layout,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &constants};
    vk_or_die(s_vk.vkCreatePipelineLayout(h->device, &layout, NULL, &h->layout), "a pipeline layout");
    const VkAttachmentDescription screen = {.format = VK_FORMAT_R8G8B8A8_UNORM,
                                            .samples = VK_SAMPLE_COUNT_1_BIT,
                                            .loadOp = VK_ATTACHMENT_LOAD_OP_LOAD,
                                            .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
                                            .initialLayout = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                                            .finalLayout = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL};
    const VkAttachmentReference color = {0, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL};
    const VkSubpassDescription subpass = {.colorAttachmentCount = 1, .pColorAttachments = &color};
    const VkRenderPassCreateInfo pass = {.sType = VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO,
                                         .attachmentCount = 1,
                                         .pAttachments = &screen,
                                         .subpassCount = 1,
                                         .pSubpasses = &subpass};
    vk_or_die(s_vk.vkCreateRenderPass(h->device, &pass, NULL, &h->pass), "a render pass");
}

static void make_pipeline(host* h)
{
    VkShaderModule shaders[2] = {make_shader(h, s_show_vert, sizeof s_show_vert),
                                 make_shader(h, s_show_frag, sizeof s_show_frag)};
    VkPipelineShaderStageCreateInfo stages[2];
    for (int i = 0; i < 2; i++)
        stages[i] = (VkPipelineShaderStageCreateInfo){.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                      .stage = i == 0 ? VK_SHADER_STAGE_VERTEX_BIT
                                                                      : VK_SHADER_STAGE_FRAGMENT_BIT,
                                                      .module = shaders[i],
                                                      .pName = "main"};
    const VkPipelineVertexInputStateCreateInfo no_vertices = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO};
    const VkPipelineInputAssemblyStateCreateInfo triangles = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST};
    const VkViewport viewport = {0, 0, (float)h->width, (float)h->height, 0, 1};
    const VkRect2D scissor = {{0, 0}, {(uint32_t)h->width, (uint32_t)h->height}};
    const VkPipelineViewportStateCreateInfo view = {.sType = VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO,
                                                    .viewportCount = 1,
                                                    .pViewports = &viewport,
                                                    .scissorCount = 1,
                                                    .pScissors = &scissor};
    const VkPipelineRasterizationStateCreateInfo raster = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO, .lineWidth = 1.0f};
    const VkPipelineMultisampleStateCreateInfo samples = {.sType =
                                                              VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
                                                          .rasterizationSamples = VK_SAMPLE_COUNT_1_BIT};
    const VkPipelineColorBlendAttachmentState channels = {.colorWriteMask = 0xf};
    const VkPipelineColorBlendStateCreateInfo blend = {.sType =
                                                           VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
                                                       .attachmentCount = 1,
                                                       .pAttachments = &channels};
    const VkGraphicsPipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
                                               .stageCount = 2,
                                               .pStages = stages,
                                               .pVertexInputState = &no_vertices,
                                               .pInputAssemblyState = &triangles,
                                               .pViewportState = &view,
                                               .pRasterizationState = &raster,
                                               .pMultisampleState = &samples,
                                               .pColorBlendState = &blend,
                                               .layout = h->layout,
                                               .renderPass = h->pass};
    vk_or_die(s_vk.vkCreateGraphicsPipelines(h->device, VK_NULL_HANDLE, 1, &info, NULL, &h->pipeline), "a pipeline");
    for (int i = 0; i < 2; i++) s_vk.vkDestroyShaderModule(h->device, shaders[i], NULL);
}

static void make_screen(host* h, int32_t width, int32_t height)
{
    h->width = width;
    h->height = height;
    make_layouts(h);
    make_pipeline(h);
    make_image(h, width, height,
               VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT,
               false, &h->screen, &h->screen_memory, &h->screen_view);
    const VkFramebufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO,
                                          .renderPass = h->pass,
                                          .attachmentCount = 1,
                                          .pAttachments = &h->screen_view,
                                          .width = (uint32_t)width,
                                          .height = (uint32_t)height,
                                          .layers = 1};
    vk_or_die(s_vk.vkCreateFramebuffer(h->device, &info, NULL, &h->framebuffer), "a framebuffer");
    h->readback_pixels = make_buffer(h, (VkDeviceSize)width * (VkDeviceSize)height * 4,
                                     VK_BUFFER_USAGE_TRANSFER_DST_BIT, &h->readback, &h->readback_memory);
    const VkClearColorValue grey = {.float32 = {0.5f, 0.5f, 0.5f, 1.0f}};
    const VkImageSubresourceRange all = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .levelCount = 1, .layerCount = 1};
    begin_commands(h);
    change_image(h, h->screen,
                 &(change){.to = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, .after = VK_ACCESS_TRANSFER_WRITE_BIT});
    s_vk.vkCmdClearColorImage(h->commands, h->screen, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &grey, 1, &all);
    change_image(h, h->screen,
                 &(change){.from = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                           .to = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                           .before = VK_ACCESS_TRANSFER_WRITE_BIT,
                           .after = VK_ACCESS_COLOR_ATTACHMENT_READ_BIT | VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT});
    submit_commands(h, &(shown_image){0});
}

// ---- Images that sumi writes ----------------------------------------------------------------------------------------

static VkSemaphore share_timeline(const host* h, sumi_engine* engine, sumi_external** out_import)
{
    // [excerpt vulkan_timeline]
    const VkExportSemaphoreCreateInfo exported = {.sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO,
                                                  .handleTypes = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .pNext = &exported,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkSemaphore semaphore;
    vk_or_die(s_vk.vkCreateSemaphore(h->device, &info, NULL, &semaphore), "a timeline semaphore");
    const VkSemaphoreGetFdInfoKHR get = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR,
                                         .semaphore = semaphore,
                                         .handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT};
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_VULKAN_TIMELINE;
    desc.device_uuid = h->uuid;
    vk_or_die(s_vk.vkGetSemaphoreFdKHR(h->device, &get, &desc.fd), "vkGetSemaphoreFdKHR");
    sumi_or_die(sumi_import(engine, &desc, out_import), "importing a semaphore"); // the descriptor is sumi's now
    // [end]
    return semaphore;
}

static void share_image(const host* h, sumi_engine* engine, bool takes_previews, shown_image* image)
{
    // [excerpt vulkan_import]
    const VkMemoryGetFdInfoKHR get = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                      .memory = image->memory,
                                      .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_VULKAN_MEMORY;
    desc.device_uuid = h->uuid;
    desc.width = image->width;
    desc.height = image->height;
    desc.is_image = true;
    desc.is_dedicated = true;
    desc.memory_bytes = image->bytes;
    desc.takes_previews = takes_previews;
    vk_or_die(s_vk.vkGetMemoryFdKHR(h->device, &get, &desc.fd), "vkGetMemoryFdKHR");
    sumi_or_die(sumi_import(engine, &desc, &image->external), "importing an image");
    // [end]
    image->ready = share_timeline(h, engine, &image->ready_import);
    image->drawn = share_timeline(h, engine, &image->drawn_import);
}

static void make_shown(const host* h, sumi_engine* engine, int32_t width, int32_t height, bool takes_previews,
                       shown_image* out)
{
    *out = (shown_image){.width = width, .height = height};
    out->bytes = make_image(h, width, height, VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT, h->shares,
                            &out->image, &out->memory, &out->view);
    if (h->shares) share_image(h, engine, takes_previews, out);
    else
        out->pixels = make_buffer(h, (VkDeviceSize)width * (VkDeviceSize)height * 4, VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
                                  &out->upload, &out->upload_memory);
    const VkDescriptorSetAllocateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                             .descriptorPool = h->set_pool,
                                             .descriptorSetCount = 1,
                                             .pSetLayouts = &h->set_layout};
    vk_or_die(s_vk.vkAllocateDescriptorSets(h->device, &set, &out->set), "a descriptor set");
    const VkDescriptorImageInfo source = {h->sampler, out->view, VK_IMAGE_LAYOUT_GENERAL};
    const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                        .dstSet = out->set,
                                        .descriptorCount = 1,
                                        .descriptorType = VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER,
                                        .pImageInfo = &source};
    s_vk.vkUpdateDescriptorSets(h->device, 1, &write, 0, NULL);
    // In the layout GENERAL, and of the outside world's where sumi writes it.
    begin_commands(h);
    change_image(h, out->image,
                 &(change){.to = VK_IMAGE_LAYOUT_GENERAL,
                           .from_family = h->family,
                           .to_family = h->shares ? VK_QUEUE_FAMILY_EXTERNAL : h->family});
    submit_commands(h, &(shown_image){0});
}

// Draws the image to the screen if there is a new one.
static bool draw_frame(const host* h, shown_image* image)
{
    if (image->external) {
        // [excerpt vulkan_poll]
        uint64_t ready = 0;
        s_vk.vkGetSemaphoreCounterValue(h->device, image->ready, &ready);
        if (ready == image->seen_value) return false; // nothing new: the screen stays
        image->seen_value = ready;
        // [end]
    } else if (!image->is_new) {
        return false;
    }
    begin_commands(h);
    if (image->external) {
        change_image(h, image->image,
                     &(change){.from = VK_IMAGE_LAYOUT_GENERAL,
                               .to = VK_IMAGE_LAYOUT_GENERAL,
                               .after = VK_ACCESS_SHADER_READ_BIT,
                               .from_family = VK_QUEUE_FAMILY_EXTERNAL,
                               .to_family = h->family});
    } else {
        const VkBufferImageCopy whole = {.imageSubresource = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .layerCount = 1},
                                         .imageExtent = {(uint32_t)image->width, (uint32_t)image->height, 1}};
        change_image(h, image->image,
                     &(change){.from = VK_IMAGE_LAYOUT_GENERAL,
                               .to = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                               .before = VK_ACCESS_SHADER_READ_BIT,
                               .after = VK_ACCESS_TRANSFER_WRITE_BIT});
        s_vk.vkCmdCopyBufferToImage(h->commands, image->upload, image->image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1,
                                    &whole);
        change_image(h, image->image,
                     &(change){.from = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                               .to = VK_IMAGE_LAYOUT_GENERAL,
                               .before = VK_ACCESS_TRANSFER_WRITE_BIT,
                               .after = VK_ACCESS_SHADER_READ_BIT});
        image->is_new = false;
    }
    const VkRenderPassBeginInfo pass = {.sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
                                        .renderPass = h->pass,
                                        .framebuffer = h->framebuffer,
                                        .renderArea = {{0, 0}, {(uint32_t)h->width, (uint32_t)h->height}}};
    const int32_t size[2] = {h->width, h->height};
    s_vk.vkCmdBeginRenderPass(h->commands, &pass, VK_SUBPASS_CONTENTS_INLINE);
    s_vk.vkCmdBindPipeline(h->commands, VK_PIPELINE_BIND_POINT_GRAPHICS, h->pipeline);
    s_vk.vkCmdBindDescriptorSets(h->commands, VK_PIPELINE_BIND_POINT_GRAPHICS, h->layout, 0, 1, &image->set, 0, NULL);
    s_vk.vkCmdPushConstants(h->commands, h->layout, VK_SHADER_STAGE_FRAGMENT_BIT, 0, sizeof size, size);
    s_vk.vkCmdDraw(h->commands, 3, 1, 0, 0);
    s_vk.vkCmdEndRenderPass(h->commands);
    if (image->external)
        change_image(h, image->image,
                     &(change){.from = VK_IMAGE_LAYOUT_GENERAL,
                               .to = VK_IMAGE_LAYOUT_GENERAL,
                               .before = VK_ACCESS_SHADER_READ_BIT,
                               .from_family = h->family,
                               .to_family = VK_QUEUE_FAMILY_EXTERNAL});
    image->drawn_value = image->seen_value;
    submit_commands(h, image);
    return true;
}

static void read_screen(const host* h)
{
    begin_commands(h);
    change_image(h, h->screen,
                 &(change){.from = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                           .to = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                           .before = VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT,
                           .after = VK_ACCESS_TRANSFER_READ_BIT});
    const VkBufferImageCopy whole = {.imageSubresource = {.aspectMask = VK_IMAGE_ASPECT_COLOR_BIT, .layerCount = 1},
                                     .imageExtent = {(uint32_t)h->width, (uint32_t)h->height, 1}};
    s_vk.vkCmdCopyImageToBuffer(h->commands, h->screen, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, h->readback, 1, &whole);
    const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    s_vk.vkCmdPipelineBarrier(h->commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host,
                              0, NULL, 0, NULL);
    submit_commands(h, &(shown_image){0});
}

// ---- The game -------------------------------------------------------------------------------------------------------

typedef struct game {
    host host;
    sumi_engine* engine;
    sumi_model* model;
    sumi_image_desc desc;
    shown_image preview, picture;
    uint32_t seen_version;
    int frames, shown_previews, dropped_previews;
} game;

static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "vulkan: sumi: %s\n", text);
}

static void show_preview(game* g, sumi_job job, uint32_t version)
{
    shown_image* preview = &g->preview;
    if (version == g->seen_version) return;
    sumi_result result;
    if (preview->external) {
        // [excerpt vulkan_preview]
        const sumi_target target = {.external = preview->external,
                                    .wait = {preview->drawn_import, preview->ready_value},
                                    .signal = {preview->ready_import, preview->ready_value + 1}};
        result = sumi_job_show_preview(g->engine, job, 0, &target);
        if (result == SUMI_BUSY) g->dropped_previews++; // a later frame may have more luck
        if (result == SUMI_BUSY) return;
        preview->ready_value++;
        // [end]
    } else {
        sumi_image image;
        const size_t capacity = (size_t)preview->width * (size_t)preview->height * 4;
        result = sumi_job_preview(g->engine, job, 0, preview->pixels, capacity, &image);
        preview->is_new = true;
    }
    sumi_or_die(result, "showing a preview");
    g->seen_version = version;
}

static void play(game* g)
{
    shown_image* picture = &g->picture;
    sumi_image image;
    sumi_job job;
    sumi_job_status status;
    // [excerpt vulkan_job]
    sumi_target target = {.format = SUMI_FORMAT_RGBA8};
    if (picture->external) {
        target.external = picture->external;
        target.wait = (sumi_sync){picture->drawn_import, picture->ready_value};
        target.signal = (sumi_sync){picture->ready_import, ++picture->ready_value};
    } else {
        target.host_memory = picture->pixels;
    }
    g->desc.targets = &target;
    sumi_or_die(sumi_submit_images(g->engine, &g->desc, &job), "submitting a job");
    // [end]
    do {
        sumi_engine_update(g->engine, 4000);
        status = sumi_job_poll(g->engine, job);
        show_preview(g, job, status.preview_version);
        g->shown_previews += draw_frame(&g->host, &g->preview);
        g->frames++;
        system_sleep_us(1000); // a game waits for its display
    } while (status.state < SUMI_JOB_DONE);
    sumi_or_die(sumi_fetch_images(g->engine, job, &image, 1), "making a picture");
    picture->is_new = true;
    while (!draw_frame(&g->host, picture)) g->frames++, system_sleep_us(1000); // the GPU is copying it
    g->frames++;
}

// Whether the screen shows the picture that sumi returns in host memory.
static int compare(game* g, const char* path)
{
    sumi_image image;
    sumi_job job;
    g->desc.targets = NULL;
    sumi_or_die(sumi_submit_images(g->engine, &g->desc, &job), "submitting a job");
    sumi_or_die(sumi_job_wait(g->engine, job, SUMI_FOREVER), "waiting");
    sumi_or_die(sumi_fetch_images(g->engine, job, &image, 1), "making a picture");
    read_screen(&g->host);
    const unsigned char *screen = g->host.readback_pixels, *wanted = image.pixels;
    const size_t bytes = (size_t)image.row_bytes * (size_t)image.height;
    size_t different = 0;
    for (size_t i = 0; i < bytes; i++) different += screen[i] != wanted[i];
    char message[PICTURE_MESSAGE_BYTES];
    const picture_source source = {screen, image.width, image.height, (size_t)image.row_bytes, 4, NULL, 0};
    if (path && !picture_write(path, &source, message)) die("writing the picture", message);
    sumi_images_release(g->engine, &image, 1);
    printf("%d frames, %d previews shown, %d dropped; %zu of %zu bytes of the screen differ from host memory\n",
           g->frames, g->shown_previews, g->dropped_previews, different, bytes);
    return different != 0;
}

static void destroy_shown(const host* h, shown_image* image)
{
    // The last preview may still wait for the one before it to be drawn, which will not happen: then it waits no longer.
    // The queue signals this too, as everything else of `drawn`: vkSignalSemaphore may not pass a value that is pending.
    if (image->external && image->drawn_value + 1 < image->ready_value) {
        image->drawn_value = image->ready_value - 1;
        begin_commands(h);
        submit_commands(h, image); // no commands, and the signal
    }
    sumi_external_release(image->external);
    sumi_external_release(image->ready_import);
    sumi_external_release(image->drawn_import);
    s_vk.vkDestroySemaphore(h->device, image->ready, NULL);
    s_vk.vkDestroySemaphore(h->device, image->drawn, NULL);
    s_vk.vkDestroyBuffer(h->device, image->upload, NULL);
    s_vk.vkFreeMemory(h->device, image->upload_memory, NULL);
    s_vk.vkDestroyImageView(h->device, image->view, NULL);
    s_vk.vkDestroyImage(h->device, image->image, NULL);
    s_vk.vkFreeMemory(h->device, image->memory, NULL);
}

static void close_host(host* h)
{
    s_vk.vkDestroyFramebuffer(h->device, h->framebuffer, NULL);
    s_vk.vkDestroyImageView(h->device, h->screen_view, NULL);
    s_vk.vkDestroyImage(h->device, h->screen, NULL);
    s_vk.vkFreeMemory(h->device, h->screen_memory, NULL);
    s_vk.vkDestroyBuffer(h->device, h->readback, NULL);
    s_vk.vkFreeMemory(h->device, h->readback_memory, NULL);
    s_vk.vkDestroyPipeline(h->device, h->pipeline, NULL);
    s_vk.vkDestroyRenderPass(h->device, h->pass, NULL);
    s_vk.vkDestroyPipelineLayout(h->device, h->layout, NULL);
    s_vk.vkDestroyDescriptorPool(h->device, h->set_pool, NULL);
    s_vk.vkDestroyDescriptorSetLayout(h->device, h->set_layout, NULL);
    s_vk.vkDestroySampler(h->device, h->sampler, NULL);
    s_vk.vkDestroyFence(h->device, h->fence, NULL);
    s_vk.vkDestroyCommandPool(h->device, h->pool, NULL);
    s_vk.vkDestroyDevice(h->device, NULL);
    if (h->messenger) s_vk.vkDestroyDebugUtilsMessengerEXT(h->instance, h->messenger, NULL);
    s_vk.vkDestroyInstance(h->instance, NULL);
}

int main(int argc, char** argv)
{
    const bool copies = argc > 3 && strcmp(argv[argc - 1], "--copy") == 0;
    argc -= copies;
    if (argc != 3 && argc != 4) return fprintf(stderr, "usage: vulkan MODEL PROMPT [out.png] [--copy]\n"), 2;
    game g = {0};
    open_instance(&g.host);
    sumi_engine_desc engine_desc = sumi_engine_defaults();
    engine_desc.log.write = write_log;
    sumi_or_die(sumi_engine_create(&engine_desc, &g.engine), "creating an engine");
    sumi_or_die(sumi_open_model(g.engine, argv[1], &g.model), argv[1]);
    sumi_image_item item = {.text = argv[2], .seed = 7};
    g.desc = sumi_image_defaults(g.model, SUMI_PRESET_MODEL);
    g.desc.items = &item;
    g.desc.item_count = 1;
    g.desc.preview_every = 1;
    choose_device(&g.host, sumi_engine_get_info(g.engine).device_uuid, copies);
    open_device(&g.host);
    make_screen(&g.host, g.desc.width, g.desc.height);
    make_shown(&g.host, g.engine, g.desc.width / 8, g.desc.height / 8, true, &g.preview);
    make_shown(&g.host, g.engine, g.desc.width, g.desc.height, false, &g.picture);
    play(&g);
    int status = compare(&g, argc == 4 ? argv[3] : NULL);
    vk_or_die(s_vk.vkDeviceWaitIdle(g.host.device), "vkDeviceWaitIdle");
    destroy_shown(&g.host, &g.preview);
    destroy_shown(&g.host, &g.picture);
    sumi_engine_destroy(g.engine);
    close_host(&g.host);
    if (g.host.messages >= 0) printf("validation: %d messages\n", g.host.messages);
    else printf("validation: not installed\n");
    if (g.host.messages > 0) status = 1;
    return status;
}
