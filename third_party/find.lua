-- Finds the libraries that third_party/README.md lists: through pkg-config where there is one, by their header otherwise.
-- With --libraries=FOLDER (for Windows, or to cross-compile) only there: FOLDER/include and FOLDER/lib.
-- Usage: local utf8proc = find_library("utf8proc"); then use_library(utf8proc) inside a project, link_library(utf8proc) inside an executable.

local known = {
    utf8proc = { package = "libutf8proc", header = "utf8proc.h", link = "utf8proc", debian = "libutf8proc-dev", windows = { "utf8proc_static", "utf8proc" } },
    spng     = { package = "spng",        header = "spng.h",     link = "spng",     debian = "libspng-dev",     windows = { "spng_static", "spng" } },
    zlib     = { package = "zlib",        header = "zlib.h",     link = "z",        debian = "zlib1g-dev",      windows = { "zlibstatic", "zlib", "zs", "z" } },
    jpeg     = { package = "libjpeg",     header = "jpeglib.h",  link = "jpeg",     debian = "libjpeg-dev",     windows = { "jpeg-static", "jpeg" } },
    webpmux  = { package = "libwebpmux",  header = "webp/mux.h", link = "webpmux",  debian = "libwebp-dev",     windows = { "libwebpmux", "webpmux" } },
    webp     = { package = "libwebp",     header = "webp/encode.h", link = "webp",  debian = "libwebp-dev",     windows = { "libwebp", "webp" } },
    glfw     = { package = "glfw3",       header = "GLFW/glfw3.h", link = "glfw",   debian = "libglfw3-dev" },
    gl       = { package = "gl",          header = "GL/gl.h",    link = "GL",       debian = "libgl-dev" },
    imgui    = { package = "imgui",       header = "imgui.h",    link = "imgui",    debian = "libimgui-dev" },
}

local function exists(path)
    local file = io.open(path)
    if file then file:close() end
    return file ~= nil
end

local function output_of(command)
    local pipe = io.popen(command .. (package.config:sub(1, 1) == "\\" and " 2>nul" or " 2>/dev/null"))
    if not pipe then return "" end
    local text = pipe:read("*a") or ""
    pipe:close()
    return text
end

local function flags_with(prefix, text)
    local found = {}
    for flag in text:gmatch("%S+") do
        if flag:sub(1, 2) == prefix then table.insert(found, flag:sub(3)) end
    end
    return found
end

-- In a folder that was named: its archive may be called as on Linux, or as Visual Studio's users have it.
local function look_in(folder, library)
    if not exists(folder .. "/include/" .. library.header) then return nil, folder .. "/include/" .. library.header .. " is not there" end
    library.include_folders, library.library_folders, library.links = { folder .. "/include" }, { folder .. "/lib" }, { library.link }
    for _, name in ipairs(library.windows or {}) do
        if exists(folder .. "/lib/" .. name .. ".lib") then
            library.links = { name }
            break
        end
    end
    return library
end

-- The library, or nil and what to do.
function look_for_library(name)
    local library = known[name]
    if _OPTIONS["libraries"] then return look_in(path.getabsolute(_OPTIONS["libraries"]), library) end
    local flags = output_of("pkg-config --cflags --libs " .. library.package)
    if flags:match("%S") then
        library.include_folders, library.library_folders, library.links = flags_with("-I", flags), flags_with("-L", flags), flags_with("-l", flags)
        return library
    end
    for _, folder in ipairs { "/usr/include", "/usr/local/include", "/opt/homebrew/include" } do
        if exists(folder .. "/" .. library.header) then
            local standard = folder == "/usr/include"
            library.include_folders = standard and {} or { folder }
            library.library_folders = standard and {} or { (folder:gsub("include$", "lib")) }
            library.links = { library.link }
            return library
        end
    end
    return nil, name .. " was not found. On Debian: apt-get install " .. library.debian .. " (samples/setup.sh installs all that is needed)"
end

function find_library(name)
    local library, why = look_for_library(name)
    return library or error(why, 0)
end

-- What the viewer stands on: { libraries, in the linker's order; include_folders of Dear ImGui and its backends }; or nil and why not. The backends for GLFW and OpenGL 3 have to be
-- in Dear ImGui's library, as Debian's are: they are sources that others leave to the application.
function find_window_libraries()
    local found = { libraries = {}, include_folders = {} }
    for _, name in ipairs { "imgui", "glfw", "gl" } do
        local library, why = look_for_library(name)
        if not library then return nil, why end
        table.insert(found.libraries, library)
    end
    for _, folder in ipairs(found.libraries[1].include_folders) do
        table.insert(found.include_folders, folder)
        for _, backends in ipairs { folder, folder .. "/backends" } do
            if exists(backends .. "/imgui_impl_glfw.h") then
                if backends ~= folder then table.insert(found.include_folders, backends) end
                return found
            end
        end
    end
    return nil, "Dear ImGui was found without its backend for GLFW"
end

-- The compiler for kernels and the driver's header: { nvcc = "...", include_folder = "..." or nil where compilers look anyway }; or nil and why not.
-- Nothing of CUDA is linked: the driver is opened when an engine is made.
function find_cuda()
    local why = "there is no nvcc on PATH, in CUDA_PATH, in /usr/local/cuda or in build/cuda"
    local windows = (os.getenv("CUDA_PATH") or ""):gsub("\\", "/")
    for _, nvcc in ipairs { (output_of("command -v nvcc"):gsub("%s+$", "")), windows .. "/bin/nvcc", "/usr/local/cuda/bin/nvcc", os.getcwd() .. "/build/cuda/nvidia/cu13/bin/nvcc" } do
        local major, minor = output_of('"' .. nvcc .. '" --version'):match("release (%d+)%.(%d+)")
        if major then
            local folder = nvcc:gsub("/bin/nvcc$", "") .. "/include"
            for _, include in ipairs { folder, "/usr/include" } do
                if tonumber(major) * 100 + tonumber(minor) < 1204 then why = nvcc .. " is " .. major .. "." .. minor .. ", 12.4 is the oldest that knows the instructions used"
                elseif exists(include .. "/cudaTypedefs.h") then return { nvcc = nvcc, include_folder = include ~= "/usr/include" and include or nil }
                else why = "cudaTypedefs.h is not beside " .. nvcc end
            end
        end
    end
    return nil, why
end

-- Where EGL's and OpenGL's headers are, for samples that draw: "" where compilers look anyway, nil when they are not there. Neither library is linked: EGL is opened by the program.
function find_egl()
    local folders = flags_with("-I", output_of("pkg-config --cflags egl"))
    for _, folder in ipairs { "/usr/include", "/usr/local/include" } do table.insert(folders, folder) end
    for _, folder in ipairs(folders) do
        if exists(folder .. "/EGL/eglext.h") and exists(folder .. "/GL/glcorearb.h") then return folder == "/usr/include" and "" or folder end
    end
    return nil
end

-- Where Vulkan's headers are, for samples and tests that open its loader by themselves: "" beside the system's own; nil, they are not there.
function find_vulkan()
    for _, folder in ipairs { "/usr/include", "/usr/local/include" } do
        if exists(folder .. "/vulkan/vulkan.h") then return folder == "/usr/include" and "" or folder end
    end
    return nil
end

function use_library(library) -- in the project whose sources include its header
    includedirs(library.include_folders)
end

function link_library(library) -- in executables, after the static libraries that need it
    libdirs(library.library_folders)
    links(library.links)
end

-- In shared libraries: out of its archive where the compiler finds one, so that a player's machine needs no library that came with a developer's package.
function link_library_inside(library)
    for _, name in ipairs(library.links) do
        local archive = "lib" .. name .. ".a"
        local found = output_of((os.getenv("CC") or "cc") .. " -print-file-name=" .. archive)
        if found:find("/", 1, true) then linkoptions { "-l:" .. archive } else links { name } end
    end
    libdirs(library.library_folders)
end

-- The static libraries themselves, quoted for a shell.
function find_archives(library)
    local found = {}
    for _, name in ipairs(library.links) do
        local archive = "lib" .. name .. ".a"
        local at = output_of((os.getenv("CC") or "cc") .. " -print-file-name=" .. archive):gsub("%s+$", "")
        for _, folder in ipairs(library.library_folders) do
            if exists(folder .. "/" .. archive) then at = folder .. "/" .. archive end
        end
        if not at:find("/", 1, true) then error("--bundle needs " .. archive .. ", which was not found. On Debian: apt-get install " .. library.debian, 0) end
        table.insert(found, "'" .. at .. "'")
    end
    return table.concat(found, " ")
end
