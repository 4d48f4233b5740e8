// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "inductorfs/supervisor/protocol.h"
#include "loop.h"

/// Started by `inductorfs mount`, with the descriptors of protocol.h.
int main(int argc, char** argv) {
  using namespace inductorfs;
  supervisor::Task task;
  if (!supervisor::parse_task(argc, argv, task) || ::fcntl(supervisor::kRegionFd, F_GETFD) < 0) {
    (void)std::fputs("inductorfs-supervisor: started by inductorfs mount, not by hand\n", stderr);
    return 2;
  }
  // A descriptor of its own: number 3 stays open for the workers.
  Result<takeover::Region> region = takeover::Region::attach(Fd(::fcntl(supervisor::kRegionFd, F_DUPFD_CLOEXEC, 20)));
  if (!region) {
    (void)std::fprintf(stderr, "inductorfs-supervisor: %s\n", region.error().what().c_str());
    return 1;
  }
  return supervisor::Loop(task, *region).run();
}
