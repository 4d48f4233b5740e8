// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "content.h"
#include "elf_file.h"

/// For which GPUs a cubin or a PTX text was made. Pure; safe for concurrent use.
namespace inductorfs::layout {

/// Immutable after construction.
struct CudaTarget {
  /// Who runs it besides the architecture itself.
  enum class Kind {
    kPlain,   ///< sm_90: later ones, as the form allows
    kFamily,  ///< sm_100f: later ones of the same major
    kExact,   ///< sm_90a: nobody
  };
  int architecture = 0;  ///< 90 for sm_90
  Kind kind = Kind::kPlain;

  [[nodiscard]] std::string name() const;
};

/// From the header's e_flags. kCorrupt when they name no architecture.
[[nodiscard]] Result<CudaTarget> cubin_target(const Content& content, const ElfHeader& header);
/// Whether some device of these architectures runs the machine code: the same major and no smaller a minor, and for an
/// integrated (Tegra) GPU only its own.
[[nodiscard]] bool runs_cubin(const CudaTarget& target, std::span<const int> architectures);

/// From `.version` and `.target`. kCorrupt when one is missing or not well formed.
[[nodiscard]] Result<CudaTarget> ptx_target(const Content& content);
/// Whether the driver can make code from it for some device of these architectures: any that is not older.
[[nodiscard]] bool runs_ptx(const CudaTarget& target, std::span<const int> architectures);

/// "9.0, 10.0"
[[nodiscard]] std::string capabilities_text(std::span<const int> architectures);
/// 90 as "9.0".
[[nodiscard]] std::string capability_text(int architecture);

}  // namespace inductorfs::layout
