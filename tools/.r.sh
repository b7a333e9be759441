. tools/lib.sh
. tools/lib-two.sh
trap 'two_down; rm -rf $work' EXIT
two_up >/dev/null 2>&1
touch tests/coherence-known.txt; cp tests/coherence-known.txt $work/k; : > tests/coherence-known.txt
python3 tests/coherence.py $two_a $two_b model_shared_regions copy_range_seen
cp $work/k tests/coherence-known.txt
