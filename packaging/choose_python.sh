# Prints the Python that `make` uses: `sh choose_python.sh NAME ...`.
#
# This is the first of the names in PATH that was compiled with profile-guided optimization; otherwise the first that
# can create virtual environments; otherwise the first that exists; otherwise python3.
# The script uses no other programs, because a minimal machine may not have them.
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
