-- Finds the libraries that third_party/README.md lists: through pkg-config where there is one, by their header otherwise.
-- Usage: local utf8proc = find_library("utf8proc"); then use_library(utf8proc) inside a project, link_library(utf8proc) inside an executable.

local known = {
    utf8proc = { package = "libutf8proc", header = "utf8proc.h", link = "utf8proc", debian = "libutf8proc-dev" },
    spng     = { package = "spng",        header = "spng.h",     link = "spng",     debian = "libspng-dev" },
    zlib     = { package = "zlib",        header = "zlib.h",     link = "z",        debian = "zlib1g-dev" },
}

local function output_of(command)
    local pipe = io.popen(command .. " 2>/dev/null")
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

function find_library(name)
    local library = known[name]
    local flags = output_of("pkg-config --cflags --libs " .. library.package)
    if flags:match("%S") then
        library.include_folders, library.library_folders, library.links = flags_with("-I", flags), flags_with("-L", flags), flags_with("-l", flags)
        return library
    end
    for _, folder in ipairs { "/usr/include", "/usr/local/include", "/opt/homebrew/include" } do
        local header = io.open(folder .. "/" .. library.header)
        if header then
            header:close()
            local standard = folder == "/usr/include"
            library.include_folders = standard and {} or { folder }
            library.library_folders = standard and {} or { (folder:gsub("include$", "lib")) }
            library.links = { library.link }
            return library
        end
    end
    error(name .. " was not found. On Debian: apt-get install " .. library.debian .. " (samples/setup.sh installs all that is needed)", 0)
end

function use_library(library) -- in the project whose sources include its header
    includedirs(library.include_folders)
end

function link_library(library) -- in executables, after the static libraries that need it
    libdirs(library.library_folders)
    links(library.links)
end
