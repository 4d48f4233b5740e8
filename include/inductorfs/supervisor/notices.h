// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs::supervisor {

/// In a child: becomes a messenger, which tells the kernel (`device`, /dev/fuse) what comes at its end of the socket
/// `notices`, and keeps no other descriptor. It starts threads, and allocates. Ends the process when nobody is left who
/// could send a notice.
[[noreturn]] void be_messenger(int device, int notices);

}  // namespace inductorfs::supervisor
