#!/usr/bin/env bash
# What the library's objects define and what they call. usage: tests/check_symbols.sh build/.../libsumi.a [build/.../libsumi.so]
#   defined:   every external symbol begins with sumi_, so that it meets no other library's in the host's program
#   undefined: nothing that ends the process, prints, or touches signals: the host lives on whatever happens
#   assertions: none; they belong to checked builds (debug, asan, tsan)
#   shown:     the shared library shows the functions of the headers, and nothing else
# snprintf and vsnprintf (messages) are fine, and so is __stack_chk_fail: a compiler that adds stack guards (-fstack-protector) is the host's own choice.
# The last line is "symbols: N passed, N failed, N skipped".
set -uo pipefail
library=${1:-build/release/lib/libsumi.a}
passed=0 failed=0

if [ ! -e "$library" ]; then
    echo "FAILED: $library is not there: build it first"
    echo "symbols: 0 passed, 1 failed, 0 skipped"
    exit 1
fi
check() { # what, offending lines
    if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/  /' <<<"$2"
}

defined=$(nm -A -g --defined-only "$library" 2>/dev/null | grep -v '^$')
undefined=$(nm -A -g -u "$library" 2>/dev/null | grep -v '^$')
count=$(grep -c . <<<"$defined")

check "every external symbol begins with sumi_" "$(awk '$NF !~ /^sumi_/' <<<"$defined")"

forbid() { # what, pattern of whole symbol names
    check "$1" "$(awk -v pattern="^($2)(@.*)?\$" '$NF ~ pattern' <<<"$undefined")"
}
forbid "nothing ends the process" 'abort|exit|_exit|_Exit|quick_exit|at_quick_exit|atexit|__assert_fail|__assert|__assert_perror_fail|terminate|longjmp|_longjmp|siglongjmp'
forbid "nothing prints" '(__)?v?d?f?w?printf(_chk)?|puts|fputs|fwrite|fputc|putc|putchar|_IO_putc|perror|psignal|syslog|vsyslog|openlog|std(in|out|err)|write'
forbid "nothing touches signals" 'signal|sigaction|raise|kill|killpg|sigprocmask|pthread_sigmask|pthread_kill|alarm|setitimer|bsd_signal|__sysv_signal'
forbid "nothing changes what belongs to the whole process" 'setlocale|setenv|unsetenv|putenv|chdir|fchdir|umask|srand|rand|random|srandom|strtok|system|popen|fork|execv.*|fesetround|fesetenv'
check "no assertions in a release build" "$(awk '$NF == "sumi_assert_failed"' <<<"$defined"$'\n'"$undefined")"
# All memory goes through the host's allocator: only base/memory.c, the built-in allocator, may call the C library's. bundled.o (--bundle) holds other libraries' functions
# too, which the library does not call or calls with its own allocator; what it calls itself is seen in an archive without them.
check "only base/memory.c allocates" "$(awk '$NF ~ /^(malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|memalign|strdup|strndup|getline|asprintf|vasprintf)$/ && $0 !~ /:(memory(\.c)?|bundled)\.o:/' <<<"$undefined")"
# A pipe in the place of a file would block an open for ever: one function, in base/platform.c, opens regular files only.
check "only base/platform.c opens files" "$(awk '$NF ~ /^(open|open64|openat|openat64|creat|creat64|fopen|fopen64|freopen|freopen64|opendir|fdopendir|scandir)(@.*)?$/ && $0 !~ /:(platform(\.c)?|bundled)\.o:/' <<<"$undefined")"
# .data and .bss hold variables that live as long as the process: two engines would share them. (.data.rel.ro is constant tables.)
check "no variables shared between engines" "$(nm -A "$library" 2>/dev/null | awk '$(NF-1) ~ /^[dDbBC]$/' | while read -r object rest; do
    symbol=${rest##* }; member=${object#*:}; member=${member%%:*}
    section=$(objdump -t "$library" 2>/dev/null | awk -v member="$member" -v symbol="$symbol" '$1 == member":" { inside = 1 } $2 == "file" && $3 == "format" && $1 != member":" { inside = 0 } inside && $NF == symbol { for (i = 1; i < NF; i++) if ($i ~ /^\./ && $i != ".hidden") { print $i; exit } }' | head -n 1)
    case $section in .data.rel.ro* | .rodata*) ;; *) echo "$member: $symbol in ${section:-?}" ;; esac
done)"

if [ -n "${2:-}" ]; then
    shown=$(nm -D --defined-only "$2" 2>/dev/null | awk '{ print $NF }' | sort)
    declared=$(cat "$(dirname "$0")"/../include/*.h | grep '^SUMI_API' | grep -oE 'sumi_[a-z_]+\(' | tr -d '(' | sort)
    check "the shared library shows the headers' functions and nothing else" "$(diff <(echo "$declared") <(echo "$shown") | grep '^[<>]' | sed 's/^</not shown:/; s/^>/shown:/')"
fi

echo "$count external symbols looked at"
echo "symbols: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
