#!/usr/bin/env bash
# One certified-accuracy line per exact smoothing: a briefly trained model each, 500 MNIST test digits, every view of them voted on.
# From the project's root: bash results/exact/make.sh FOLDER   (about an hour on 2 cores; TOGETHER=1, all at once, for a GPU)
set -euo pipefail
folder=${1:?a folder for the models and runs}
vauban=${VAUBAN:-.venv/bin/vauban}
mkdir -p "$folder"

line() {
  $vauban train --data mnist --smoothing "$2" --model cnn --epochs 10 --lr 0.002 --out "$folder/$1.safetensors"
  $vauban certify --data mnist --smoothing "$2" --model "$folder/$1.safetensors" --every 20 --limit 500 \
    --radii "$3" --out "$folder/$1" --json > "$folder/$1.json"
  $vauban verify "$folder/$1"
}

while read -r name smoothing radii; do
  line "$name" "$smoothing" "$radii" &
  [ -n "${TOGETHER:-}" ] || wait
done <<'LIST'
band band:size=4,threshold=0.3 0,2,5,7
band-one-vote band:size=4 0,2,5,7
block block:size=12 0,2,5,7
sparse sparse:scale=20 0,2,5,8
splitting splitting:sigma=1 0,0.5,1,1.5
fractional fractional:p=1/2,scale=18 0,10,30,60
fractional-third fractional:p=1/3,scale=6 0,5,10,20
LIST
wait
