// SPDX-License-Identifier: Apache-2.0
#include "vfs/failing_attributes.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace {

std::atomic<const char*> failing{nullptr};

bool fails(const char* name) {
  const char* const one = failing;
  return one != nullptr && std::strcmp(one, name) == 0;
}

}  // namespace

// In place of the C library's, for every part of this program.
extern "C" ssize_t fgetxattr(int file, const char* name, void* value, size_t size) noexcept {
  static const auto real = reinterpret_cast<decltype(&fgetxattr)>(::dlsym(RTLD_NEXT, "fgetxattr"));
  if (!fails(name)) return real(file, name, value, size);
  errno = EIO;
  return -1;
}

extern "C" ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  static const auto real = reinterpret_cast<decltype(&lgetxattr)>(::dlsym(RTLD_NEXT, "lgetxattr"));
  if (!fails(name)) return real(path, name, value, size);
  errno = EIO;
  return -1;
}

namespace inductorfs::testing {

FailingAttributes::FailingAttributes(const char* name) { failing = name; }
FailingAttributes::~FailingAttributes() { failing = nullptr; }

}  // namespace inductorfs::testing
