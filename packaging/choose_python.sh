# Prints the Python that `make` uses: `sh choose_python.sh NAME ...`.
#
# It is the first Python in PATH, in the order of the names, that was compiled with profile-guided optimization;
# otherwise the first that can create virtual environments; otherwise the first that exists; otherwise python3.
# The script runs no other programs, because a minimal machine may have none.
check="${0%/*}/check_python.py"
usable= found=
IFS=:
set -f
for name; do
    for folder in $PATH; do
        candidate="${folder:-.}/$name"
        [ -x "$candidate" ] && [ ! -d "$candidate" ] || continue
        : "${found:=$candidate}"
        build=$("$candidate" "$check" --build 2>/dev/null) || continue
        : "${usable:=$candidate}"
        case "$build" in
        *", not optimized") ;;
        *", optimized") printf '%s\n' "$candidate" && exit ;;
        esac
    done
done
printf '%s\n' "${usable:-${found:-python3}}"
