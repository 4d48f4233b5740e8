#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_kernel.sh NVCC SOURCE HEADER FOLDER: the probe's kernel, compiled for each architecture that this nvcc offers of those
# that we support, and as PTX, as bytes in a C++ header. FOLDER is for what lies between.
set -eu
nvcc=$1
source=$2
header=$3
folder=$4
mkdir -p "$folder"

offered=$("$nvcc" --list-gpu-arch)
generate=
architectures=
oldest=
for number in 75 80 86 89 90 100 103 110 120 121; do
  if printf '%s\n' "$offered" | grep -qx "compute_$number"; then
    generate="$generate -gencode arch=compute_$number,code=sm_$number"
    architectures="$architectures $number"
    oldest=${oldest:-$number}
  fi
done
[ -n "$oldest" ] || { echo "$nvcc offers none of the architectures that this program supports" >&2; exit 1; }

# Not compressed: drivers before CUDA 12.4 do not know the compression of newer toolkits.
# shellcheck disable=SC2086  # a list of options
"$nvcc" -fatbin --no-compress $generate -o "$folder/gpu_kernel.fatbin" "$source"
# nvcc writes its own, newest PTX version, which only drivers of its age read. What the kernel uses was there in 7.0
# (CUDA 11.0); the assembler run proves it.
"$nvcc" -ptx -arch="compute_$oldest" -o "$folder/gpu_kernel.new.ptx" "$source"
sed 's/^\.version .*/.version 7.0/' "$folder/gpu_kernel.new.ptx" >"$folder/gpu_kernel.ptx"
"$nvcc" -cubin -arch="sm_$oldest" -o "$folder/gpu_kernel.cubin" "$folder/gpu_kernel.ptx"

bytes() {
  od -An -v -tu1 "$1" | sed 's/ *\([0-9][0-9]*\)/\1,/g'
}
{
  echo '// SPDX-License-Identifier: Apache-2.0'
  echo '// Made by gpu_kernel.sh.'
  echo '#pragma once'
  echo '#include <string_view>'
  echo 'namespace inductorfs::fingerprint::image {'
  echo "inline constexpr std::string_view kArchitectures = \"${architectures# }\";"
  echo "inline constexpr int kOldestArchitecture = $oldest;"
  echo "inline constexpr std::string_view kToolkit = \"$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')\";"
  echo 'alignas(16) inline constexpr unsigned char kFatbin[] = {'
  bytes "$folder/gpu_kernel.fatbin"
  echo '};'
  echo 'alignas(16) inline constexpr unsigned char kPtx[] = {'
  bytes "$folder/gpu_kernel.ptx"
  echo '0};'
  echo '}  // namespace inductorfs::fingerprint::image'
} >"$folder/gpu_kernel_image.h"
mv "$folder/gpu_kernel_image.h" "$header"
