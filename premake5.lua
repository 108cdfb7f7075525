-- The build, for Premake 5 and for Debian's Premake 4:
--
--     premake5 gmake                      or   premake4 --file=premake5.lua gmake
--     make -C build -j2                         (config=debug, asan, tsan: another configuration than release)
--
--     premake5 --libraries=FOLDER vs2022       Visual Studio, with its clang (README.md, "Windows"); no GPU kernels are compiled there: --kernels=FOLDER brings them
--     premake5 --libraries=FOLDER --os=windows gmake      and make CC=x86_64-w64-mingw32-gcc AR=x86_64-w64-mingw32-ar: MinGW-w64
--
-- Everything that is made goes under build/ (or --build=FOLDER): build/release/lib/libsumi.a, build/release/bin/sumi, ...
-- Another compiler: CC=clang make -C build ...; give it a folder of its own, for objects do not know which compiler made them.
-- The file lists are taken when this script runs: run it again after adding a source file.

-- ---- Premake 4 speaks an older dialect: these few words are all that differ -----------------------------------------------------------
local is_premake4 = not workspace
if is_premake4 then
    workspace = solution
    function filter(terms)
        local plain = {}
        for _, term in ipairs(type(terms) == "table" and terms or { terms }) do table.insert(plain, (term:gsub("^configurations:", ""))) end
        configuration(plain)
    end
    function optimize(value) if value == "Speed" then flags { "OptimizeSpeed" } end end
    function symbols(value) if value == "On" then flags { "Symbols" } end end
end

newoption { trigger = "build", value = "FOLDER", description = "Where to put makefiles, objects and products (build)" }
newoption { trigger = "kernels", value = "FOLDER", description = "Where to put the compiled GPU kernels (kernels in the build folder): builds can share one" }
newoption { trigger = "libraries", value = "FOLDER", description = "Where utf8proc, libspng, zlib and, if wanted, libjpeg and libwebp are, with include and lib in it; without it pkg-config is asked" }
newoption { trigger = "no-cuda", description = "Build the CPU library alone, without looking for nvcc" }
newoption { trigger = "no-viewer", description = "Leave samples/apps/viewer out, without looking for GLFW and Dear ImGui" }
newoption { trigger = "shared", description = "Also make the shared library, plugin/libsumi.so (sumi.dll): for hosts that load one by name, such as samples/engines/unity" }
newoption { trigger = "shared-tests", description = "Link all programs with one shared library, for tests/run_gpu.sh --collect: together they are then small enough to be carried" }
newoption { trigger = "bundle", description = "Put what the library needs of utf8proc and zlib into libsumi.a, under local names: a host links that archive and the C library" }
newoption { trigger = "families", value = "LIST", description = "The families of models to build, by the names of src/models/recipe_*.c: z-image,qwen-image,qwen-image-21,newbie,flux2-klein (all)" }
newoption { trigger = "gpus", value = "LIST", description = "The GPUs for which the kernels are machine code, by compute capability, such as 8.6,12.0; native: those of this machine; others compile when they first start (all)" }
newoption { trigger = "no-hopper", description = "Leave out the GPU kernels and the machine code for Hopper (9.0), which then runs the portable kernels" }
newoption { trigger = "no-optimize", description = "Compile all of the library without optimisation in the debug configuration, the CPU kernels too: images take 25 times as long" }
newoption { trigger = "fuzz", description = "Make the fuzzers (tests/fuzz/*.c) instead of the tests; needs CC=clang and config=asan" }

dofile "third_party/find.lua"

local build = _OPTIONS["build"] or "build"
local is_windows = (is_premake4 and os.get() or os.target()) == "windows"
local is_visual_studio = (_ACTION or ""):match("^vs") ~= nil
if is_visual_studio and _OPTIONS["bundle"] then error("--bundle takes GNU's linker and objcopy: use make with gcc, clang or MinGW-w64", 0) end
if is_visual_studio and is_premake4 then error("Premake 4 cannot choose Visual Studio's clang: use Premake 5", 0) end
local all_configurations = is_windows and { "debug", "release" } or { "debug", "release", "asan", "tsan" }
local utf8proc, spng, zlib = find_library "utf8proc", find_library "spng", find_library "zlib"
local jpeg, webp, webpmux = look_for_library "jpeg", look_for_library "webp", look_for_library "webpmux"
if not (webp and webpmux) then webp, webpmux = nil, nil end
if _ACTION and not jpeg then print("samples: without JPEG (no jpeglib.h; Debian: libjpeg-dev)") end
if _ACTION and not webp then print("samples: without WebP (no webp/mux.h; Debian: libwebp-dev)") end

local cuda, why_no_cuda
local kernels = _OPTIONS["kernels"] or build .. "/kernels"
local gpus = _OPTIONS["gpus"] or "all" -- kernels/build.sh says what they are
if gpus ~= "all" and gpus ~= "native" and not (gpus .. ","):gsub("%d+%.%da?,", ""):match "^$" then error("--gpus: " .. gpus .. " is neither all nor native nor a list of compute capabilities, such as 8.6,12.0", 0) end
if _OPTIONS["no-cuda"] then why_no_cuda = "--no-cuda" else cuda, why_no_cuda = find_cuda() end
if cuda and is_windows and #os.matchfiles(kernels .. "/kernel_images.c") == 0 then -- kernels/build.sh is for a POSIX shell, and what it makes is the same everywhere
    cuda, why_no_cuda = nil, "no " .. kernels .. "/kernel_images.c: take it from a build on Linux"
end
if _ACTION and not cuda then print("CUDA backend: left out (" .. why_no_cuda .. ")") end
local egl = not is_windows and find_egl()
if _ACTION and not egl and not is_windows then print("samples/instruments/pacing: without OpenGL, samples/depth_scene: left out (no EGL/eglext.h and GL/glcorearb.h; Debian: libegl-dev, libgl-dev)") end

local vulkan = not is_windows and find_vulkan()
if _ACTION and not vulkan and not is_windows then print("samples/vulkan: left out (no vulkan/vulkan.h; Debian: libvulkan-dev)") end

local window, why_no_window
if _OPTIONS["no-viewer"] or _OPTIONS["fuzz"] or is_windows then why_no_window = is_windows and "Windows" or "--no-viewer" else window, why_no_window = find_window_libraries() end
if _ACTION and not window and not _OPTIONS["fuzz"] then print("samples/apps/viewer: left out (" .. why_no_window .. ")") end

local function any_file(pattern) return #os.matchfiles(pattern) > 0 end

local function read_file(name)
    local file = assert(io.open(name))
    local text = file:read("*a")
    file:close()
    return text
end

-- The families that are left out, as recipes.c asks for them: SUMI_WITHOUT_Z_IMAGE for recipe_z_image.c.
local function left_out_families()
    local left_out, known = {}, {}
    for _, source in ipairs(os.matchfiles "src/models/recipe_*.c") do known[path.getbasename(source):gsub("^recipe_", ""):gsub("_", "-")] = true end
    if not _OPTIONS["families"] then return left_out end
    local wanted, names = {}, {}
    for name in pairs(known) do table.insert(names, name) end
    table.sort(names)
    for name in _OPTIONS["families"]:gmatch "[^,]+" do
        if not known[name] then error("--families: there is no " .. name .. "; there are " .. table.concat(names, ", "), 0) end
        wanted[name] = true
    end
    if not next(wanted) then error("--families: name one at least of " .. table.concat(names, ", "), 0) end
    for _, name in ipairs(names) do
        if not wanted[name] then table.insert(left_out, "SUMI_WITHOUT_" .. name:gsub("-", "_"):upper()) end
    end
    return left_out
end

local function any_contains(patterns, words)
    for _, pattern in ipairs(patterns) do
        for _, source in ipairs(os.matchfiles(pattern)) do
            local text = source:match("%.c$") and read_file(source) or ""
            for _, word in ipairs(words) do
                if text:find(word, 1, true) then return true end
            end
        end
    end
    return false
end

local function any_includes(patterns, headers) -- as they stand behind #include: "x.h" with its quotes
    local lines = {}
    for _, header in ipairs(headers) do table.insert(lines, "#include " .. header) end
    return any_contains(patterns, lines)
end

-- Windows goes without the programs that ask for these, unless they ask for something else there. MinGW-w64 has POSIX' threads.
local function is_left_out(patterns)
    if not is_windows then return false end
    if is_visual_studio and any_includes(patterns, { "<pthread.h>" }) then return true end
    return not any_contains(patterns, { "defined(_WIN32)" }) and any_includes(patterns, { "<dlfcn.h>", "<unistd.h>", "<sys/" })
end

workspace "sumi"
    configurations(all_configurations)
    location(build)
    symbols "On"
    includedirs { "include" }
    -- No contraction into FMA and no -ffast-math: the portable code gives the same bits whichever compiler made it.
    if is_visual_studio then
        toolset "clang" -- Microsoft's own compiler has neither C11's atomics nor vector types
        architecture "x86_64"
        warnings "Extra"
        buildoptions { "/clang:-ffp-contract=off", "-Wpedantic", "-Wshadow", "/WX" }
        defines { "_CRT_SECURE_NO_WARNINGS", "_CRT_NONSTDC_NO_WARNINGS" } -- C's own functions stay
        runtime "Release" -- as the libraries' in --libraries
    else
        buildoptions { "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror" }
    end
    if is_windows then
        defines { "UTF8PROC_STATIC", "SPNG_STATIC" }
        if not is_visual_studio then
            defines { "__USE_MINGW_ANSI_STDIO=1" } -- the standard's printf
            linkoptions { "-static" }
        end
    end
    if _OPTIONS["fuzz"] then buildoptions { "-fsanitize=fuzzer-no-link" } end
    if cuda then defines { "SUMI_HAS_CUDA" } end

    filter "configurations:debug"
        defines { "SUMI_CHECKED" }
    filter "configurations:release"
        defines { "NDEBUG" }
        optimize "Speed"
    if not is_windows then
        filter "configurations:asan"
            defines { "SUMI_CHECKED" }
            buildoptions { "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all" }
            linkoptions { "-fsanitize=address,undefined" }
        filter "configurations:tsan"
            defines { "SUMI_CHECKED" }
            buildoptions { "-O1", "-fno-omit-frame-pointer", "-fsanitize=thread" }
            linkoptions { "-fsanitize=thread" }
    end
    filter {}

-- Products of one kind in one folder per configuration; objects beside them, by project.
local function products(folder, project_name)
    for _, name in ipairs(all_configurations) do
        filter("configurations:" .. name)
            targetdir(build .. "/" .. name .. "/" .. folder)
            objdir(build .. "/" .. name .. "/obj/" .. project_name)
    end
    filter {}
end

local function c_project(name)
    project(name)
    language "C"
    if is_visual_studio then cdialect "C11" else buildoptions { "-std=c11" } end
    buildoptions { "-Wstrict-prototypes", "-Wmissing-prototypes" }
end

local function static_library(name)
    c_project(name)
    kind "StaticLib"
    -- ar only adds: without this the object of a source file that is gone stays in an archive made before.
    if not is_visual_studio then
        postbuildcommands { [[@for member in $$($(AR) t $(TARGET)); do case " $(notdir $(OBJECTS)) " in *" $$member "*) ;; *) $(AR) d $(TARGET) $$member ;; esac; done]] }
    end
    targetname(name)
    products("lib", name)
end

local system_libraries = cuda and { "m", "pthread", "dl" } or { "m", "pthread" } -- dl: for C libraries before glibc 2.34
if is_windows then system_libraries = is_visual_studio and {} or { "m" } end

-- With --shared-tests the library is shared and shows all of its functions, for the tests look inside. The loader finds what a test puts in the place of a function, and the function itself by the name
-- that --wrap would give it.
local replaceable = { "sumi_clock_ns", "sumi_sleep_us", "sumi_sleep_slack_us", "sumi_cpu_detect", "sumi_cpu_count" }
local shares_tests = _OPTIONS["shared-tests"]
if shares_tests and is_windows then error("--shared-tests is for a machine with a GPU under Linux", 0) end

local function link_sumi()
    links { "support", "sumi" }
    link_library(utf8proc)
    link_library(spng)
    link_library(zlib)
    if jpeg then link_library(jpeg) end
    if webp then
        link_library(webpmux) -- before the one that it calls
        link_library(webp)
    end
    links(system_libraries)
    if not cuda and not is_windows then links { "dl" } end -- opens NVML, a driver or EGL; before glibc 2.34
end

local function program(name)
    c_project(name)
    kind "ConsoleApp"
    targetname(name)
    products("bin", name)
    includedirs { "samples/shared" }
    defines { "_POSIX_C_SOURCE=200809L" } -- for clocks and threads; the library itself asks for no more than C11 outside base/platform.c
    if shares_tests then linkoptions { "-Wl,-rpath,'$$ORIGIN/../lib:$$ORIGIN/lib'" } end -- where it was built, and where it was collected
    if is_visual_studio then debugdir(os.getcwd()) end -- tests find their data from here
    link_sumi()
end

-- Another project that must be there first, though nothing of it is linked.
local function after(name)
    if is_premake4 then links { name } else dependson { name } end
end

-- Sources that include the CUDA driver's header; it is no model of pedantic C.
local function use_cuda()
    if not cuda or not cuda.include_folder then return end
    buildoptions { is_visual_studio and '/imsvc"' .. cuda.include_folder .. '"' or "-isystem '" .. cuda.include_folder .. "'" }
end

-- ---- The GPU's kernels ----------------------------------------------------------------------------------------------------------------
-- kernels/*.cu -> kernel_images.c, which is a source of the library. A project of its own, so that it is done before the library is begun; kernels/build.sh runs in every
-- build and does what has changed.
if cuda and not is_windows then
    c_project "pack"
        kind "ConsoleApp"
        targetname "pack"
        products("tools", "pack")
        use_library(zlib)
        files { "kernels/pack.c" }
        link_library(zlib)

    c_project "kernels" -- a library of no use, from any source: no kind of project only runs a command in both Premakes, and without an object Premake 5 runs none
        kind "StaticLib"
        targetname "no_kernels"
        products("tools", "kernels")
        use_library(zlib)
        files { "kernels/pack.c" }
        after "pack"
        for _, name in ipairs(all_configurations) do
            filter("configurations:" .. name)
                prebuildcommands { string.format("@'%s' '%s' '%s' '%s' '%s'", path.getabsolute "kernels/build.sh", cuda.nvcc, path.getabsolute(build .. "/" .. name .. "/tools/pack"),
                                                 path.getabsolute(kernels), gpus) }
        end
        filter {}
end

-- ---- The library ----------------------------------------------------------------------------------------------------------------------
local function matching(patterns)
    local found = {}
    for _, pattern in ipairs(patterns) do
        for _, source in ipairs(os.matchfiles(pattern)) do table.insert(found, source) end
    end
    return found
end

-- The rooms that compute or read files are optimised in the debug configuration, too, as in CMakeLists.txt. Premake 4 has no options of single files; make knows the file when it expands them.
local function optimize_computing_rooms()
    local rooms = { "base", "cpu", "files", "pictures", "sampling", "text" }
    if is_visual_studio then
        for _, room in ipairs(rooms) do
            filter { "configurations:debug", "files:src/" .. room .. "/*.c" }
                optimize "Speed"
        end
    else
        filter "configurations:debug"
            buildoptions { "$(if $(filter " .. table.concat(rooms, " ") .. ",$(notdir $(patsubst %/,%,$(dir $<)))),-O2)" }
    end
    filter {}
end

local function library_sources(rooms)
    if not _OPTIONS["no-optimize"] then optimize_computing_rooms() end
    defines(left_out_families())
    if _OPTIONS["no-hopper"] then defines { "SUMI_WITHOUT_HOPPER" } end
    includedirs { "src", "." } -- the kernels' launch headers are "kernels/x.h"
    use_library(utf8proc)
    files { "include/*.h", "src/**.h" }
    local folder_of = {} -- objects have no folders: Premake 4 would silently lose one of two files of the same name
    for _, source in ipairs(matching(rooms)) do
        local name = path.getname(source)
        assert(not folder_of[name], "two sources of the library are called " .. name .. ": in " .. (folder_of[name] or "") .. " and " .. path.getdirectory(source))
        folder_of[name] = path.getdirectory(source)
        local is_absent = source == "src/cuda/absent.c"
        if not source:find("^src/cuda/") or is_absent == not cuda then files { source } end
    end
    if cuda then
        if not is_windows then after "kernels" end
        use_cuda()
        use_library(zlib)
    end
    -- Position independent, so that it can go into a plug-in; hidden, so that the plug-in does not export it again.
    if not is_windows then buildoptions { "-fPIC" } end
    if not is_windows and not _OPTIONS["shared-tests"] then buildoptions { "-fvisibility=hidden" } end
end

if shares_tests then
    c_project "sumi"
        kind "SharedLib"
        targetname "sumi"
        products("lib", "sumi")
        for _, name in ipairs(replaceable) do linkoptions { "-Wl,--defsym=__real_" .. name .. "=" .. name } end
        link_library(utf8proc)
        link_library(zlib)
        links(system_libraries)
else
    static_library "sumi"
end
    library_sources(_OPTIONS["fuzz"] and { "src/base/*.c", "src/files/*.c", "src/text/*.c", "src/models/adapter_*.c", "src/plan/weight.c" } or { "src/**.c" }) -- what fuzzers read with
    if cuda then files { kernels .. "/kernel_images.c" } end
    if _OPTIONS["bundle"] then
        local archives = find_archives(utf8proc)
        if cuda then archives = archives .. " " .. find_archives(zlib) end
        postbuildcommands { "@CC='$(CC)' AR='$(AR)' '" .. path.getabsolute "packaging/bundle.sh" .. "' $(TARGET) " .. archives }
    end

-- The same for hosts that load libraries by name. It shows the header's functions alone. All of these are in src/engine, which is compiled a second time, for symbols that were hidden in an archive
-- cannot be shown again; the rest comes out of the archive.
if _OPTIONS["shared"] then
    c_project "sumi_shared"
        kind "SharedLib"
        targetname "sumi"
        products("plugin", "sumi_shared")
        library_sources { is_windows and "src/**.c" or "src/engine/*.c" }
        if is_windows then -- where an archive's name depends on who makes it
            if cuda then files { kernels .. "/kernel_images.c" } end
        else
            links { "sumi" } -- linked again when it has changed
            for _, name in ipairs(all_configurations) do
                filter("configurations:" .. name)
                    linkoptions { "'" .. path.getabsolute(build) .. "/" .. name .. "/lib/libsumi.a'" } -- ahead of the archives that it asks for
            end
            filter {}
        end
        if is_visual_studio then
            defines { "SUMI_API=__declspec(dllexport)" }
        else
            buildoptions { is_windows and "'-DSUMI_API=__attribute__((dllexport))'" or "'-DSUMI_API=__attribute__((visibility(\"default\")))'" }
            linkoptions { "-Wl,--exclude-libs,ALL" } -- what comes out of archives below stays inside
        end
        link_library_inside(utf8proc)
        if cuda then link_library_inside(zlib) end
        links(system_libraries)
        if not is_windows then
            filter "configurations:release" -- not with the sanitizers: clang leaves theirs to the program
                linkoptions { "-Wl,-z,defs" }
            filter {}
        end
end

-- What samples and tests share: reading and writing picture files, random checkpoints.
static_library "support"
    includedirs { "samples/shared" }
    use_library(spng)
    use_library(zlib)
    if jpeg then
        use_library(jpeg)
        defines { "PICTURE_HAS_JPEG" }
    end
    if webp then
        use_library(webp)
        defines { "PICTURE_HAS_WEBP" }
    end
    files { "samples/shared/*.h", "samples/shared/*.c" }

-- What a host links besides the library, in the linker's order.
local needs = cuda and { "utf8proc", "zlib" } or { "utf8proc" }
local inside = {}
if _OPTIONS["bundle"] then needs, inside = inside, needs end

local function write_file(name, text)
    local file = assert(io.open(name, "w"))
    file:write(text)
    file:close()
end

-- build/<configuration>/sumi.pc, so that pkg-config finds the library where it was built.
local function write_package_file()
    local header = read_file("include/sumi.h")
    local function part(name) return header:match("#define SUMI_VERSION_" .. name .. "%s+(%d+)") or "0" end
    local packages = table.concat(needs, " "):gsub("utf8proc", "libutf8proc")
    for _, name in ipairs(all_configurations) do
        local folder = path.getabsolute(build) .. "/" .. name
        local values = { PREFIX = os.getcwd(), INCLUDEDIR = "${prefix}/include", LIBDIR = folder .. "/lib", VERSION = part("MAJOR") .. "." .. part("MINOR") .. "." .. part("PATCH"),
                         REQUIRES = packages, LIBRARY = "-lsumi", SYSTEM = "-l" .. table.concat(system_libraries, " -l") }
        os.mkdir(folder)
        write_file(folder .. "/sumi.pc", (read_file("packaging/sumi.pc.in"):gsub("@(%u+)@", values)))
    end
end
if _ACTION and _ACTION ~= "clean" and not is_windows then write_package_file() end

-- Objects do not know what they were compiled with. Where that has changed since makefiles were written into this folder, they are compiled again.
local function forget_objects_of_other_options()
    local found = { cuda = cuda, jpeg = jpeg, webp = webp, egl = egl, vulkan = vulkan }
    local options = {}
    for _, name in ipairs { "cuda", "jpeg", "webp", "egl", "vulkan" } do table.insert(options, name .. "=" .. (found[name] and "yes" or "no")) end
    for _, name in ipairs { "families", "no-hopper", "no-optimize", "fuzz" } do table.insert(options, name .. "=" .. tostring(_OPTIONS[name])) end
    local text, name = table.concat(options, "\n") .. "\n", path.getabsolute(build) .. "/options.txt"
    os.mkdir(path.getabsolute(build))
    if os.isfile(name) and read_file(name) ~= text then
        for _, configuration_name in ipairs(all_configurations) do os.rmdir(path.getabsolute(build) .. "/" .. configuration_name .. "/obj") end
    end
    write_file(name, text)
end
if (_ACTION or ""):match("^gmake") then forget_objects_of_other_options() end

-- No kind of project only runs a command in both Premakes. Make reads a GNUmakefile before a Makefile, which is Premake's.
if (_ACTION or ""):match("^gmake") and not _OPTIONS["fuzz"] then
    os.mkdir(path.getabsolute(build))
    write_file(path.getabsolute(build) .. "/GNUmakefile", string.format([[
# Written by premake5.lua: Premake's own Makefile, whose default is debug where this one's is release, and four targets more. What may be said to them is in packaging/install.sh.
#
#     make -C build install PREFIX=/usr/local
#     make -C build uninstall PREFIX=/usr/local
#     make -C build install-program PREFIX=/usr/local        the command line and its manual page
config ?= release
include Makefile

.PHONY: install uninstall install-program uninstall-program
install: sumi%s
install-program: sumi-cli
install uninstall install-program uninstall-program:
	@NEEDS='%s' SYSTEM='%s' LICENCES='%s' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' INCLUDEDIR='$(INCLUDEDIR)' DESTDIR='$(DESTDIR)' '%s' $@ '$(CURDIR)/$(config)'
]], _OPTIONS["shared"] and " sumi_shared" or "", table.concat(needs, " "), table.concat(system_libraries, " "), table.concat(inside, " "), path.getabsolute "packaging/install.sh"))
end

-- ---- Samples --------------------------------------------------------------------------------------------------------------------------
-- A folder with C in it is a program of the folder's name, but for samples/shared, which is the library above. Samples see the public header only; but the command line looks into checkpoints (inspect, tokenize)
-- more closely than a host would, through samples/apps/sumi/inside.h.
if not _OPTIONS["fuzz"] then
    local folders = {}
    for _, pattern in ipairs { "samples/*", "samples/apps/*", "samples/instruments/*" } do
        for _, folder in ipairs(os.matchdirs(pattern)) do table.insert(folders, folder) end
    end
    for _, folder in ipairs(folders) do
        local name = path.getname(folder)
        local lacks = name == "shared" or (name == "vulkan" and not vulkan) or (name == "depth_scene" and not egl) or (name == "d3d12" and not is_windows)
        if any_file(folder .. "/*.c") and not is_left_out { folder .. "/*.c" } and not lacks then
            -- Project names are unique, and no names of libraries that are linked; the programs are called sumi and d3d12 all the same.
            program(({ sumi = "sumi-cli", d3d12 = "d3d12-sample" })[name] or name)
                targetname(name)
                if name == "sumi" then
                    includedirs { "src" }
                    use_cuda()
                end
                if name == "pacing" and egl then
                    defines { "PACING_HAS_EGL" }
                    if egl ~= "" then includedirs { egl } end
                end
                if name == "depth_scene" and egl ~= "" then includedirs { egl } end
                if name == "vulkan" then
                    if vulkan ~= "" then includedirs { vulkan } end
                end
                if name == "d3d12" then links { "d3d12", "dxgi" } end
                if is_windows and any_includes({ folder .. "/*.c" }, { "<pthread.h>" }) then links { "pthread" } end
                files { folder .. "/*.h", folder .. "/*.c" }
        end
    end
end

-- The one in C++, as most hosts are.
if window then
    project "viewer"
        language "C++"
        kind "ConsoleApp"
        targetname "viewer"
        products("bin", "viewer")
        includedirs { "samples/shared", "samples/apps/viewer" }
        buildoptions { "-std=c++17" }
        for _, folder in ipairs(window.include_folders) do buildoptions { "-isystem '" .. folder .. "'" } end -- its headers do not compile without warnings everywhere
        files { "samples/apps/viewer/*.h", "samples/apps/viewer/*.cpp" }
        link_sumi()
        for _, library in ipairs(window.libraries) do link_library(library) end
end

-- ---- Tests ----------------------------------------------------------------------------------------------------------------------------
-- Every test_*.c in tests/list.txt is a program, and so is every fuzz/*.c, for libFuzzer; tests/golden_*.c are golden_run. They see every room.
-- The paths of the table's programs that match a pattern, in its order. A source without a row would be left out in silence, and so it is an error.
local function listed_tests(pattern)
    local sources, has_row = {}, {}
    for row in read_file("tests/list.txt"):gmatch "[^\r\n]+" do
        local source = "tests/" .. (row:match "^[^#%s]+" or "")
        if source:match("^tests/" .. pattern .. "%.c$") and not has_row[source] then
            if not os.isfile(source) then error("tests/list.txt: there is no " .. source .. ": take its row out or write the file", 0) end
            has_row[source] = true
            table.insert(sources, source)
        end
    end
    for _, source in ipairs(os.matchfiles("tests/" .. pattern:gsub("%.%*", "*") .. ".c")) do
        if not has_row[source] then error("tests/list.txt: " .. source .. " has no row: add one that says in which builds it runs", 0) end
    end
    return sources
end

-- The driver that needs no GPU. Under Windows the two libraries are a DLL and one whose exports are the first one's.
local has_fake_cuda = cuda and not is_visual_studio and not _OPTIONS["fuzz"]
if has_fake_cuda then
    c_project "fake_cuda"
        kind "SharedLib"
        targetname(is_windows and "nvcuda" or "fake_cuda")
        products("fake", "fake_cuda")
        use_cuda()
        files { "tests/fake_cuda/*.h", "tests/fake_cuda/*.c" }
        if not is_windows then
            buildoptions { "-fPIC" }
            linkoptions { "-Wl,-soname,libcuda.so.1" }
            links { "pthread" }
        end
        for _, name in ipairs(all_configurations) do
            local folder = path.getabsolute(build .. "/" .. name .. "/fake")
            filter("configurations:" .. name)
                if is_windows then
                    postbuildcommands { "@$(CC) -shared -o '" .. folder .. "/nvml.dll' '" .. path.getabsolute "tests/fake_cuda/nvml.def" .. "'" }
                else
                    postbuildcommands { "ln -sf libfake_cuda.so '" .. folder .. "/libcuda.so.1'", "ln -sf libfake_cuda.so '" .. folder .. "/libnvidia-ml.so.1'" }
                end
        end
        filter {}
end

-- A driver that passes calls on to the one that is there, as another card (tests/pretend_cuda). It has every entry that cuda.h declares, under the name that the driver exports.
local function write_pretend_entries(folder)
    local text, names, list = read_file((cuda.include_folder or "/usr/include") .. "/cuda.h"), {}, {}
    for name in text:gmatch "CUresult%s+CUDAAPI%s+(cu%u[%w_]*)%s*%(" do names[name] = true end
    for _, exported in text:gmatch "#%s*define%s+(cu%u[%w_]*)%s+(cu%u[%w_]*)" do names[exported] = true end
    for exported in text:gmatch "__CUDA_API_PT[DS][SZ]%((cu%u[%w_]*)%)" do names[exported] = true end
    for _, name in ipairs { "cuGetProcAddress", "cuGLGetDevices", "cuGLGetDevices_v2", "cuGraphicsGLRegisterImage", "cuGraphicsGLRegisterBuffer" } do names[name] = true end -- an older one, and OpenGL's, which other headers have
    for name in pairs(names) do table.insert(list, name) end
    table.sort(list)
    os.mkdir(folder)
    write_file(folder .. "/pretend_entries.h", "// Written by premake5.lua from cuda.h. Do not edit.\n#define ENTRIES(X) \\\n    X(" .. table.concat(list, ") \\\n    X(") .. ")\n")
end

if cuda and not is_windows and not _OPTIONS["fuzz"] then
    local generated = path.getabsolute(build) .. "/pretend_entries"
    if _ACTION and _ACTION ~= "clean" then write_pretend_entries(generated) end
    c_project "pretend_cuda"
        kind "SharedLib"
        targetname "pretend_cuda"
        products("pretend", "pretend_cuda")
        use_cuda()
        use_library(zlib)
        includedirs { generated, "src" }
        buildoptions { "-fPIC" }
        linkoptions { "-Wl,-soname,libcuda.so.1" }
        files { "tests/pretend_cuda/*.c" }
        link_library(zlib)
        links { "dl" }
        for _, name in ipairs(all_configurations) do
            filter("configurations:" .. name)
                postbuildcommands { "ln -sf libpretend_cuda.so '" .. path.getabsolute(build .. "/" .. name .. "/pretend") .. "/libcuda.so.1'" }
        end
        filter {}
end

-- A test that includes fake_cuda.h is linked with a CUDA driver that needs no GPU: its soname is libcuda.so.1, and so the backend finds it instead of a real one. Under Windows it is called nvcuda.dll and has to
-- be in the system's folder, as the real one (tests/run_windows.sh).
local function uses_fake_cuda(sources) return any_includes(sources, { '"fake_cuda.h"' }) end

-- The library's calls of a function go to the test's.
local function replace(name)
    linkoptions { shares_tests and "-Wl,--defsym=" .. name .. "=__wrap_" .. name or "-Wl,--wrap=" .. name }
end

local function test_program(name, sources)
    local uses_fake_clock, uses_fake_processors = any_includes(sources, { '"fake_clock.h"' }), any_includes(sources, { '"fake_processors.h"' })
    if is_left_out(sources) or ((uses_fake_clock or uses_fake_processors) and is_visual_studio) then return end
    program(name)
        if not is_visual_studio then
            replace "sumi_cpu_detect"
            files { "tests/cpu_level.c" }
        end
        if uses_fake_clock then
            replace "sumi_clock_ns"
            replace "sumi_sleep_us"
            replace "sumi_sleep_slack_us"
        end
        if uses_fake_processors then replace "sumi_cpu_count" end
        if has_fake_cuda and uses_fake_cuda(sources) then
            includedirs { "tests/fake_cuda" }
            links { "fake_cuda" }
            if not shares_tests then -- which are for a machine with a GPU
                replace "inflate"
                files { "tests/unpacked_once.c" }
                use_library(zlib)
            end
            for _, configuration_name in ipairs(is_windows and {} or all_configurations) do
                filter("configurations:" .. configuration_name)
                    linkoptions { "-Wl,--disable-new-dtags,-rpath," .. path.getabsolute(build .. "/" .. configuration_name .. "/fake") } -- before LD_LIBRARY_PATH: a real driver may be there
            end
            filter {}
        end
        if not is_visual_studio then buildoptions { "-O0" } end -- what takes time in a test is the library; compiling tests for speed takes five times as long
        includedirs { "src", "tests", "." }
        if name == "test_cuda_gl" and egl then
            defines { "SUMI_TEST_HAS_EGL" }
            if egl ~= "" then includedirs { egl } end
        end
        if name == "test_cuda_pretend" and cuda then linkoptions { "-rdynamic" } end -- shows the stand-in a table of images of its own
        if name == "test_cuda_vulkan" and vulkan then
            defines { "SUMI_TEST_HAS_VULKAN" }
            if vulkan ~= "" then includedirs { vulkan } end
        end
        use_library(spng)
        use_cuda()
        files(sources)
end

if _OPTIONS["fuzz"] then
    for _, source in ipairs(listed_tests "fuzz/.*") do
        test_program(path.getbasename(source), { source })
            linkoptions { "-fsanitize=fuzzer" }
    end
else
    for _, source in ipairs(listed_tests "test_.*") do -- test_x.c, and what is in the folder x
        local folder = "tests/" .. path.getbasename(source):gsub("^test_", "")
        local sources = { source, "tests/*.h", folder .. "/*.h" }
        for _, part in ipairs(os.matchfiles(folder .. "/*.c")) do table.insert(sources, part) end
        test_program(path.getbasename(source), sources)
    end
    for _, source in ipairs(os.matchfiles "tests/tune_*.c") do -- measure kernels, check nothing
        if cuda then test_program(path.getbasename(source), { source, "tests/*.h" }) end
    end
    test_program("cli_support", { "tests/cli_support.c" }) -- what scripts ask about files that programs wrote
    if any_file "tests/golden_*.c" then test_program("golden_run", { "tests/golden_*.h", "tests/golden_*.c" }) end
end
