// SPDX-License-Identifier: Apache-2.0
#include "command.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/writers.h"
#include "inductorfs/host/place_reader.h"
#include "inductorfs/mount/worker_command.h"

/// The commands that processes of ours start.
namespace inductorfs::cli {
namespace {

/// Asks the CUDA driver in a process of its own, which a deadline can end.
class GpuProbeCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "gpu-probe"; }
  [[nodiscard]] int run(const config::Environment&) override { return fingerprint::run_gpu_probe(); }
};

/// Reads the packages of a writing process, with the rights of its user.
class PackageFactsCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "package-facts"; }
  [[nodiscard]] int run(const config::Environment&) override { return fingerprint::run_package_reader(); }
};

/// Reads the files of the mount's own environment, with the rights of its owner.
class HostFactsCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "host-facts"; }
  [[nodiscard]] int run(const config::Environment&) override { return fingerprint::run_host_reader(); }
};

/// Looks at the places that the facts of this host come from.
class HostPlacesCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "host-places"; }
  [[nodiscard]] int run(const config::Environment&) override { return host::run_place_reader(); }
};

/// Serves a mount for its supervisor. The mountpoint is there for whoever looks at the list of processes.
class WorkerCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "worker"; }
  void add_to(CLI::App& app) override { app.add_option("MOUNTPOINT", path_, ""); }
  [[nodiscard]] int run(const config::Environment&) override { return mount::worker_command(); }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<Subcommand> gpu_probe_command() { return std::make_unique<GpuProbeCommand>(); }
std::unique_ptr<Subcommand> package_facts_command() { return std::make_unique<PackageFactsCommand>(); }
std::unique_ptr<Subcommand> host_facts_command() { return std::make_unique<HostFactsCommand>(); }
std::unique_ptr<Subcommand> host_places_command() { return std::make_unique<HostPlacesCommand>(); }
std::unique_ptr<Subcommand> worker_command() { return std::make_unique<WorkerCommand>(); }

}  // namespace inductorfs::cli
