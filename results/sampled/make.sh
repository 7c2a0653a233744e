#!/usr/bin/env bash
# One certified-accuracy line per sampled smoothing: a briefly trained model each, 500 MNIST test digits, 1,000 votes.
# From the project's root: bash results/sampled/make.sh FOLDER   (5 minutes on a GPU, a quarter of an hour on 2 cores)
set -euo pipefail
folder=${1:?a folder for the models and runs}
vauban=${VAUBAN:-.venv/bin/vauban}
mkdir -p "$folder"
while read -r name smoothing model; do
  $vauban train --data mnist --smoothing "$smoothing" --epochs 4 --lr 0.002 ${model:+--model "$model"} \
    --out "$folder/$name.safetensors"
  $vauban certify --data mnist --smoothing "$smoothing" --model "$folder/$name.safetensors" --every 20 --limit 500 \
    -n 1000 --alpha 0.001 --out "$folder/$name" --json > "$folder/$name.json"
  $vauban verify "$folder/$name"
done <<'LIST'
gaussian gaussian:sigma=0.5
laplace laplace:sigma=0.5
uniform uniform:sigma=0.5
splitting splitting:sigma=0.5,sampled=true
fractional fractional:p=1/2,scale=18,sampled=true
ablation ablation:retained=45
discrete discrete:keep=0.2,values=256
flow flow:sigma=0.005 cnn-small:channels=1,classes=10,mean=0,std=0.005
band band:size=4,sampled=true
block block:size=10,sampled=true
LIST
