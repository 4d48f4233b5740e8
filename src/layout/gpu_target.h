// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "artefact.h"
#include "elf_file.h"

/// Finds out for which GPUs a cubin or a PTX text was made. The functions are pure; safe for concurrent use.
namespace inductorfs::layout {

/// The architecture for which code was made. Immutable after construction.
struct CudaTarget {
  /// Says which devices run the code in addition to those of the architecture itself.
  enum class Kind {
    kPlain,   ///< sm_90: later ones, as the form allows
    kFamily,  ///< sm_100f: later ones of the same major version
    kExact,   ///< sm_90a: none
  };
  int architecture = 0;  ///< 90 for sm_90
  Kind kind = Kind::kPlain;

  [[nodiscard]] std::string name() const;
};

/// Reads the target from the header's e_flags. kCorrupt when they name no architecture.
[[nodiscard]] Result<CudaTarget> cubin_target(const Artefact& artefact, const ElfHeader& header);
/// Says whether some device of these architectures runs the machine code: one of the same major version and no smaller
/// minor version, and for an integrated (Tegra) GPU only its own.
[[nodiscard]] bool runs_cubin(const CudaTarget& target, std::span<const int> architectures);

/// Reads the target from `.version` and `.target`. kCorrupt when one is missing or not well formed.
[[nodiscard]] Result<CudaTarget> ptx_target(const Artefact& artefact);
/// Says whether the driver can make code from it for some device of these architectures: for any that is not older.
[[nodiscard]] bool runs_ptx(const CudaTarget& target, std::span<const int> architectures);

/// Returns "9.0, 10.0" for {90, 100}.
[[nodiscard]] std::string capabilities_text(std::span<const int> architectures);
/// Returns "9.0" for 90.
[[nodiscard]] std::string capability_text(int architecture);

}  // namespace inductorfs::layout
