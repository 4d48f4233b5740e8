// SPDX-License-Identifier: Apache-2.0
#include "remains.h"

#include <sys/wait.h>

#include <algorithm>

namespace inductorfs::supervisor {

void Remains::add(pid_t child) {
  const auto free = std::find(children_.begin(), children_.end(), 0);
  if (free != children_.end()) *free = child;
}

void Remains::reap() {
  for (pid_t& child : children_) {
    if (child != 0 && ::waitpid(child, nullptr, WNOHANG) != 0) child = 0;
  }
}

}  // namespace inductorfs::supervisor
