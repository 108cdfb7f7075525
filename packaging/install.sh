#!/usr/bin/env bash
# Installs the library out of a build; `make -C build install` calls it. usage: packaging/install.sh install|uninstall|install-program|uninstall-program BUILD/CONFIGURATION
# The program is the command line, samples/apps/sumi, with its manual page.
#
# In the environment:
#   PREFIX INCLUDEDIR LIBDIR   where to (/usr/local, include and lib in it); what is installed may be moved as a whole
#   DESTDIR                    in front of all of that, for packages
#   NEEDS SYSTEM               what the library needs: of "utf8proc zlib", and of the C library ("m pthread dl"); premake5.lua knows
#   LICENCES                   folders by the name of libraries that are inside the archive, whose notices are installed
#
# Of a build for Windows by MinGW-w64 it installs bin/sumi.dll with its import libraries, lib/libsumi.dll.a and, if there is a plugin/sumi.lib, that for Microsoft's linker.
set -euo pipefail
verb=$1 build=$2
source=$(cd "$(dirname "$0")/.." && pwd)
prefix=${PREFIX:-/usr/local}
case $prefix in /*) ;; *) echo "install: PREFIX is $prefix: give an absolute path" >&2; exit 1 ;; esac
prefix=$(realpath -ms "$prefix")
within() { realpath -ms --relative-to="$prefix" "$1"; }
includedir=$(within "${INCLUDEDIR:-$prefix/include}")
libdir=$(within "${LIBDIR:-$prefix/lib}")
case "$includedir/ $libdir/" in *../*) echo "install: INCLUDEDIR and LIBDIR have to be in PREFIX, or what is installed could not be moved" >&2; exit 1 ;; esac
cmakedir=$libdir/cmake/sumi
to_prefix() { realpath -ms --relative-to="$prefix/$1" "$prefix"; }

count=0
put() { # mode source target below the prefix
    local target=${DESTDIR:-}$prefix/$3
    count=$((count + 1))
    case $verb in uninstall*)
        rm -f "$target"
        return ;;
    esac
    mkdir -p "$(dirname "$target")"
    install -m "$1" "$2" "$target"
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

case $verb in *-program)
    ending=
    [ ! -e "$build/bin/sumi.exe" ] || ending=.exe
    if [ "$verb" = install-program ]; then
        [ -x "$build/bin/sumi$ending" ] || { echo "install: there is no program in $build/bin: build it first" >&2; exit 1; }
        [ -n "$ending" ] || "$build/bin/sumi" help --man >"$folder/sumi.1"
    fi
    put 755 "$build/bin/sumi$ending" "bin/sumi$ending"
    [ -n "$ending" ] || put 644 "$folder/sumi.1" share/man/man1/sumi.1
    if [ "$verb" = install-program ]; then echo "installed the program sumi in ${DESTDIR:-}$prefix/bin"; else echo "the program sumi is no longer in ${DESTDIR:-}$prefix/bin"; fi
    exit 0 ;;
esac

version_part() { sed -nE "s/^#define SUMI_VERSION_$1 +([0-9]+).*/\1/p" "$source/include/sumi.h"; }
version=$(version_part MAJOR).$(version_part MINOR).$(version_part PATCH)
archive= shared=
for name in libsumi.a sumi.lib; do [ -z "$archive" ] && [ -e "$build/lib/$name" ] && archive=$build/lib/$name; done
for name in libsumi.so sumi.dll libsumi.dylib; do [ -z "$shared" ] && [ -e "$build/plugin/$name" ] && shared=$build/plugin/$name; done
if [ "$verb" = install ] && [ -z "$archive" ]; then echo "install: there is no library in $build/lib: build it first" >&2; exit 1; fi

# Where the shared library goes; its import library is what MinGW-w64 links for -lsumi, unless it is told -static.
import= target_of_shared=
case $shared in
    *.dll)
        target_of_shared=bin/sumi.dll
        for name in libsumi.dll.a libsumi.a; do [ -z "$import" ] && [ -e "$build/plugin/$name" ] && import=$build/plugin/$name; done
        if [ "$verb" = install ] && [ -z "$import" ]; then echo "install: there is no import library beside $shared: build it again" >&2; exit 1; fi ;;
    ?*) target_of_shared=$libdir/${shared##*/} ;;
esac

links= requires=
for name in ${NEEDS:-}; do links="$links;sumi::$name"; done
for name in ${SYSTEM:-}; do links="$links;-l$name"; done
for name in ${NEEDS:-}; do case $name in utf8proc) requires="$requires libutf8proc" ;; *) requires="$requires $name" ;; esac; done
library=-lsumi
[ -z "$shared" ] || [ -n "$import" ] || library=-l:libsumi.a # a linker takes the shared one of two for -lsumi
fill() { # name: the template's
    sed -e "s|@PREFIX@|\${pcfiledir}/$(to_prefix "$libdir/pkgconfig")|" -e "s|@INCLUDEDIR@|$2$includedir|" -e "s|@LIBDIR@|$2$libdir|" -e "s|@VERSION@|$version|" \
        -e "s|@REQUIRES@|${requires# }|" -e "s|@LIBRARY@|$library|" -e "s|@SYSTEM@|$(printf -- '-l%s ' ${SYSTEM:-})|" -e "s|@NEEDS@|$(tr ' ' ';' <<<"${NEEDS:-}")|" \
        -e "s|@TO_PREFIX@|$(to_prefix "$cmakedir")|" -e "s|@ARCHIVE@|libsumi.a|" -e "s|@LINKS@|${links#;}|" -e "s|@SHARED@|$target_of_shared|" -e 's/ *$//' "$source/packaging/$1.in" >"$folder/$1"
    ! grep -n '@[A-Z_]*@' "$folder/$1" >&2
}
fill sumi.pc '${prefix}/'
for name in sumiConfig.cmake sumiConfigVersion.cmake sumiTargets.cmake; do fill $name ''; done

for header in sumi.h sumi_xml.h; do put 644 "$source/include/$header" "$includedir/$header"; done
put 644 "$archive" "$libdir/libsumi.a"
[ -z "$shared" ] || put 755 "$shared" "$target_of_shared"
if [ -n "$import" ]; then
    put 644 "$import" "$libdir/libsumi.dll.a"
    [ ! -e "$build/plugin/sumi.lib" ] || put 644 "$build/plugin/sumi.lib" "$libdir/sumi.lib"
fi
put 644 "$folder/sumi.pc" "$libdir/pkgconfig/sumi.pc"
for name in sumiConfig.cmake sumiConfigVersion.cmake sumiTargets.cmake; do put 644 "$folder/$name" "$cmakedir/$name"; done
put 644 "$source/packaging/sumiDependencies.cmake" "$cmakedir/sumiDependencies.cmake"
put 644 "$source/LICENSE" "share/licenses/sumi/LICENSE"
for name in ${LICENCES:-}; do # where Debian keeps them
    for notice in /usr/share/doc/lib"$name"*-dev/copyright /usr/share/doc/"$name"*-dev/copyright; do
        [ ! -e "$notice" ] || put 644 "$notice" "share/licenses/sumi/$name"
    done
done
if [ "$verb" = uninstall ]; then
    for name in "$cmakedir" "$libdir/pkgconfig" share/licenses/sumi; do rmdir "${DESTDIR:-}$prefix/$name" 2>/dev/null || true; done # ours, or empty
    echo "sumi is no longer in ${DESTDIR:-}$prefix"
else
    echo "installed sumi $version in ${DESTDIR:-}$prefix ($count files)"
fi
