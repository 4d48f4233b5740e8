// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// Names of the forms that torch and Triton make, for the tests of this module.
namespace inductorfs::layout::samples {

inline const std::string kHash = "q4jxihmvmlopctynrmhs4d6tuexttaqzwfe4ltascftze3os7wc";  // 51 of base32
inline const std::string kCode = "cab" + std::string("y4jxihmvmlopctynrmhs4d6tuexttaqzwfe4ltascftze3os7");  // c + 51
inline const std::string kGraphKey = "fab" + kCode.substr(3);
inline const std::string kAutogradKey = "aab" + kCode.substr(3);
inline const std::string kHex = "9803d84b32c68a9335c4973aabb56cb5132d930c575952c22cf4bc1e5128f1ee";
inline const std::string kKey = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST";  // Triton >= 3.3
inline const std::string kBase64Key = "-_CDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnop4";     // Triton 3.2
inline const std::string kUuid = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";

}  // namespace inductorfs::layout::samples
