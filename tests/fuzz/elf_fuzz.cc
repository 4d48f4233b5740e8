// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "content_checks.h"
#include "elf_file.h"
#include "fuzz_target.h"
#include "gpu_target.h"

namespace layout = inductorfs::layout;
namespace fuzz = inductorfs::fuzz;
using inductorfs::ErrorCode;

namespace {

constexpr std::array<int, 3> kDevices = {75, 90, 100};

layout::HostLimits some_host() {
  layout::HostLimits host;
  host.glibc = "2.36";
  host.glibcxx = "3.4.30";
  host.cxxabi = "1.3.13";
  host.x86_isa_level = 3;
  host.resolves = [](std::string_view soname) { return soname.starts_with("lib"); };
  return host;
}

void fuzz_target(const layout::CudaTarget& target) {
  INDUCTORFS_CHECK(target.name().starts_with("sm_") && target.architecture >= 20);
  const std::array own = {target.architecture};
  INDUCTORFS_CHECK(layout::runs_cubin(target, own) && layout::runs_ptx(target, own));
  INDUCTORFS_CHECK(!layout::runs_cubin(target, {}) && !layout::runs_ptx(target, {}));
  // PTX is made into code of that architecture and later ones: it runs wherever such code does.
  if (layout::runs_cubin(target, kDevices)) INDUCTORFS_CHECK(layout::runs_ptx(target, kDevices));
}

void fuzz_elf(std::string_view bytes) {
  static const layout::HostLimits host = some_host();
  const layout::Artefact artefact{"k.so", bytes, bytes.size()};
  const auto header = layout::read_elf_header(artefact);
  if (!header) {
    INDUCTORFS_CHECK(header.error().code() == ErrorCode::kCorrupt);
    return;
  }
  if (const auto target = layout::cubin_target(artefact, *header)) fuzz_target(*target);
  const layout::Artefact head{"k.so", bytes.substr(0, bytes.size() / 2), bytes.size()};
  (void)layout::cubin_target(head, *header);  // wants the whole, or does not
  const auto names = layout::read_section_names(artefact);
  INDUCTORFS_CHECK(names || names.error().code() == ErrorCode::kCorrupt);
  const auto needs = layout::read_elf_needs(artefact);
  if (!needs) {
    INDUCTORFS_CHECK(needs.error().code() == ErrorCode::kCorrupt);
    return;
  }
  const auto checked = layout::check_elf_needs(artefact, *needs, host);
  INDUCTORFS_CHECK(checked || checked.error().code() == ErrorCode::kNotSupported);
}

void fuzz_ptx(std::string_view text) {
  if (const auto target = layout::ptx_target({"k.ptx", text, text.size()})) fuzz_target(*target);
}

}  // namespace

/// ELF and cubin where the input begins as one; else PTX.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::view(data, size);
  if (input.starts_with('\177')) {
    fuzz_elf(input);
  } else {
    fuzz_ptx(input);
  }
  return 0;
}
