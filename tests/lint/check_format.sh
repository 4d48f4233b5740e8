#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every C++ file is as .clang-format says.   check_format.sh CLANG_FORMAT
cd "$(dirname "$0")/../.." || exit 2
find include src tests -name '*.cc' -o -name '*.h' | sort | xargs "${1:-clang-format}" --dry-run -Werror
