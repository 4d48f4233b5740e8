// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/base/result.h"

/// What a user can do by itself: the places that root's mount shows to it, and links where no mount is shown in its
/// default directory, as in a container with a temporary directory of its own.
namespace inductorfs::places {

/// Makes links in `directory`, torch's default directory of this user, to the directories of `root`, a directory of a
/// mount, that a mount shows there by default; makes what is missing on both sides. Nothing that exists is replaced but
/// a link of this kind that leads nowhere, or into another directory of a mount. Returns for each place what is there
/// now, in words. kNotPermitted when one of the two directories is another user's, or `directory` is a link; kInvalid
/// when one of them lies in the other. Blocks on the mount.
[[nodiscard]] Result<std::vector<std::string>> link_default_places(const std::string& root,
                                                                   const std::string& directory);

/// Makes, as this user and by the same rules, the directories at the default places in `directory`, and `root`: a mount
/// of root's shows itself there when it is asked (mount::Mounter::show_to()). Blocks on the mount.
[[nodiscard]] Result<void> make_default_places(const std::string& root, const std::string& directory);

}  // namespace inductorfs::places
