// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace inductorfs {

/// A stateless deleter for handles of C libraries: std::unique_ptr<sqlite3, FreeWith<sqlite3_close>> is as large as the
/// raw pointer. Put a handle into its owner in the statement that acquires it, and check afterwards.
template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* handle) const noexcept {
    (void)Free(handle);  // a destructor has nobody to tell
  }
};

template <typename T, auto Free>
using Handle = std::unique_ptr<T, FreeWith<Free>>;

}  // namespace inductorfs
