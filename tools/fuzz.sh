#!/usr/bin/env bash
# Runs every fuzz target for so many seconds, one on each core; the nightly options work on the stable toolchain this way.
set -euo pipefail
cd "$(dirname "$0")/../rust"
export RUSTC_BOOTSTRAP=1
unset PYO3_BUILD_EXTENSION_MODULE
cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
targets=$(cargo fuzz list --fuzz-dir fuzz)
[ -n "$targets" ] || { echo "there is nothing to fuzz" >&2; exit 1; }
# What is fuzzed has no unsafe code for a sanitizer to watch, which would take as long again to build.
# In many units, as one that is optimized as a whole takes longer to build than it runs.
options=(--sanitizer none --codegen-units 16 --fuzz-dir fuzz)
cargo fuzz build "${options[@]}"
for target in $targets; do
    mkdir -p "fuzz/corpus/$target"
    [ ! -d "fuzz/seeds/$target" ] || cp -n "fuzz/seeds/$target"/* "fuzz/corpus/$target/"
done
limits=(-max_total_time="$1" -timeout=60 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0)
xargs --verbose --max-procs "$(nproc)" -I TARGET cargo fuzz run "${options[@]}" TARGET -- "${limits[@]}" <<<"$targets"
