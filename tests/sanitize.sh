#!/usr/bin/env bash
# The native code under the compiler's sanitizers: builds the extension in a temporary copy and runs
# the tests that reach it.
#
#   tests/sanitize.sh                     all of these
#   tests/sanitize.sh address,undefined   memory errors and undefined behaviour
#   tests/sanitize.sh thread              data races, in tests/native/threads.cpp, then in the tests
#                                         that use threads
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-$PWD/.venv/bin/python}
compiler=${CXX:-g++}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r bpe_core tests examples setup.py pyproject.toml README.md LICENSE "$copy"
cd "$copy"

native=(
  tests/bpe_core/test_{documents,merge_learner,native_counting,native_encoder,normalization,pathological,patterns}.py
  tests/bpe_core/test_{added_tokens,character_merges,counts,extending,merge_texts,reference_characters,special_tokens,split_patterns}.py
  tests/bpe_core/test_{count_algebra,count_groups,evaluation,merge_steps,mixtures,parity,pruning}.py
  tests/bpe_core/test_{required_tokens,superwords,token_files,vocabulary_sizes}.py
  tests/bpe_core/test_{tokenizer,tokenizer_use,training,utf8}.py
)

# The C library frees the variables of a thread that has ended when another takes its stack; the
# sanitizer does not see that the two are in order.
echo "race:_dl_deallocate_tls" > suppressions

build() {
  rm -rf build bpe_core/*.so
  BPE_SANITIZE=$1 "$python" setup.py --quiet build_ext --inplace
}

# The sanitizers' libraries must come first in the interpreter, which is not built with them, and
# the C++ library with them, whose functions they replace. Each object has memory of its own from
# malloc, so that reading beyond its end is seen. Interpreters leave memory behind: no leaks are reported.
# Arrow's own allocator, which is not built with them, would be reported as a race with itself.
run() {
  local preload="" library
  for library in "$1" libstdc++.so; do
    preload+="$("$compiler" -print-file-name="$library") "
  done
  shift
  LD_PRELOAD=$preload PYTHONMALLOC=malloc ARROW_DEFAULT_MEMORY_POOL=system \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
    TSAN_OPTIONS="halt_on_error=1 suppressions=$copy/suppressions" \
    setarch --addr-no-randomize "$python" -m pytest -p no:cacheprovider -o timeout=1200 "$@"
}

for sanitizers in "${@:-address,undefined thread}"; do
  for sanitizer in $sanitizers; do
    echo "== $sanitizer"
    build "$sanitizer"
    case $sanitizer in
      thread)
        # Without Python, whose own locks would hide races of short calls.
        "$compiler" -std=c++20 -O1 -g -fsanitize=thread -Ibpe_core/native tests/native/threads.cpp \
          $(find build/objects -name '*.o' ! -name module.o) -o threads
        TSAN_OPTIONS="halt_on_error=1 suppressions=$copy/suppressions" setarch --addr-no-randomize ./threads 3
        run libtsan.so tests/bpe_core -k "thread or threads"
        ;;
      *) run libasan.so "${native[@]}" -k "not time and not equal_the_reference[" ;;
    esac
  done
done
