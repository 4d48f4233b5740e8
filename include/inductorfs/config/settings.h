// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/defaults.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/ownership.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/worker_user.h"
#include "inductorfs/fingerprint/trust.h"
#include "inductorfs/layout/scope.h"
#include "inductorfs/store/blob_store.h"

/// The settings of a mount. One table of options feeds the command line's help, its parser and the configuration file.
namespace inductorfs::config {

/// A directory of the mount that is shown at a further place.
struct Also {
  std::string name;  ///< relative to the mount
  std::string path;  ///< absolute
  bool operator==(const Also&) const = default;
};

/// Says whose artefacts are published.
enum class WritersPolicy {
  kMatching,  ///< those of processes whose torch, Triton and variables are this mount's (fingerprint/writers.h)
  /// Those of all processes, each under the environment that is learned from it, and each process is shown what fits
  /// its own (vfs::Host::learns()).
  kLearned,
  /// Those of all processes: the mount is for one pod, whose processes have its environment. A file is complete by the
  /// signs of torch and Triton, as under kMatching.
  kPod,
  /// Those of all processes. A file that any program wrote in place is complete when it has been quiet, too.
  kAll,
};
[[nodiscard]] std::string_view to_string(WritersPolicy policy);
/// Where `mount` says that a value is one of its own environment variables.
inline constexpr std::string_view kOwnVariables = "environment of this command";

/// The raw values of options, by name, as a command line or a file gave them. Switches have "true" or "false".
using RawValues = std::map<std::string, std::vector<std::string>, std::less<>>;

/// The options from one source, as apply() takes them.
struct GivenValues {
  RawValues values;
  std::string where;
  std::string base;
};

struct Settings {
  // Defaults that no other module has.
  static constexpr unsigned kProbeSeconds = 300;
  static constexpr unsigned kThreads = 8;
  static constexpr unsigned kStartSeconds = 60;
  static constexpr unsigned kHangSeconds = 15;
  static constexpr unsigned kCrashes = 5;

  std::string mountpoint;            ///< absolute, with symbolic links followed
  std::string alias;                 ///< absolute, as the user spelled it
  std::optional<WorkerUser> worker;  ///< nothing: the worker stays who mounts
  std::string no_worker_user;        ///< why root's worker stays root, in the words of a warning
  std::string no_worker_tree;        ///< why its worker has no tree, and what to do; the warning's second half
  std::string store_root;            ///< the store's path on its disk, where a tree shows the store; else empty
  std::string remote;
  std::string password_file;
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
  std::string signing_key;
  std::string cluster_name;  ///< empty: `prefix`
  std::string store;
  bool foreground = false;
  std::string python;
  std::string fingerprint;
  /// Unset: kMatching if the mount declares an environment, else kLearned.
  std::optional<WritersPolicy> writers;
  /// Unset: for root `user`, else `all`.
  std::optional<fingerprint::TrustPolicy> trust;
  std::map<std::string, std::string> environment;  ///< declared values of variables of the environment facet
  std::chrono::seconds probe_interval{kProbeSeconds};
  std::vector<layout::RuleChange> families;  ///< of the configuration file
  std::vector<Also> also;
  bool no_also = false;
  bool no_publish = false;
  bool read_only = false;
  bool require_remote = false;
  std::vector<Also> default_also;  ///< the places in `also` that nobody gave
  std::string log;
  log::Level log_level = log::Level::kInfo;
  uint64_t store_limit = defaults::kStoreBytes;
  uint64_t store_floor = store::StoreOptions::kFloorByDisk;
  uint64_t artefact_limit = defaults::kLargestArtefact;
  uint64_t user_bytes = defaults::kHalfOfDisk;
  uint64_t user_files = defaults::kUserFiles;
  uint64_t user_requests = 0;  ///< 0: as many as there are threads
  uint64_t prefetch = defaults::kPrefetchBytes;
  uint64_t queue_limit = defaults::kQueuedGroups;
  Milliseconds quiet_time = defaults::kQuietTime;
  Milliseconds poll_interval = defaults::kPollInterval;
  Milliseconds lookup_patience = defaults::kLookupPatience;
  std::chrono::seconds compile_once{0};  ///< 0: nobody waits for another process
  bool cluster_winners = false;
  std::string prefix{defaults::kPrefix};
  uint64_t threads = kThreads;
  std::optional<bool> allow_other;  ///< unset: for root yes, else no
  std::optional<mode_t> mode;       ///< of the mount's root; unset: that of the directory
  std::string owner;                ///< of the mount's root, USER or USER:GROUP; empty: that of the directory
  std::chrono::seconds start_timeout{kStartSeconds};
  std::chrono::seconds hang_timeout{kHangSeconds};
  uint64_t crash_limit = kCrashes;
  std::vector<GivenValues> given;  ///< what the options above were made of, in order
};

struct Option {
  enum class Kind {
    kText,    ///< one value
    kList,    ///< repeatable
    kSwitch,  ///< present or not; a boolean in the file
    kToggle,  ///< --NAME or --no-NAME; a boolean in the file
  };
  std::string_view name;  ///< without dashes; the key in the file
  Kind kind = Kind::kText;
  std::string_view value_name;  ///< as help shows it; empty for switches
  std::string_view default_text;
  std::string_view help;
  /// Sets the option's value. `base` is the directory that relative paths are taken from.
  Result<void> (*set)(Settings& settings, const std::string& value, const std::string& base);
  /// For lists: removes what an earlier source of options gave.
  void (*clear)(Settings& settings) = nullptr;
};

/// Returns the options of `inductorfs mount` and of its configuration file.
[[nodiscard]] std::span<const Option> mount_options();
/// Returns the one of that name; nullptr when there is none.
[[nodiscard]] const Option* find_option(std::string_view name);

/// Applies the options in `values`; a list replaces what was there. Errors name the option, its value and what it may
/// be; `where` says which source gave it ("command line", or the file's path).
[[nodiscard]] Result<void> apply(const RawValues& values, const std::string& where, const std::string& base,
                                 Settings& settings);
/// Returns the variable of this process's environment that gives an option: INDUCTORFS_STORE_LIMIT for store-limit.
[[nodiscard]] std::string variable_of(const Option& option);
/// Returns the options that these variables give, each with its variable as the source. The items of a list have commas
/// between them; a switch is true or false. kInvalid for a switch that is neither.
[[nodiscard]] Result<std::vector<GivenValues>> given_by(const std::map<std::string, std::string>& variables,
                                                        const std::string& base);
/// Returns what --environment would declare for a job that has these variables: NAME=VALUE for each variable of the
/// environment facet whose value does not mean the same as unset. A value that is no printable text is left out.
[[nodiscard]] std::vector<std::string> declared_by(const std::map<std::string, std::string>& variables);

/// kInvalid when one source of options gives both of a pair --X and --no-X. A pair that two sources give is no
/// contradiction: the later source counts.
[[nodiscard]] Result<void> check_contradictions(const RawValues& values, const std::string& where);
/// What a configuration file says.
struct Configuration {
  RawValues values;
  std::vector<layout::RuleChange> families;
};
/// Reads a configuration file. kInvalid names the line, or the unknown key; kNotFound when there is no such file.
[[nodiscard]] Result<Configuration> read_configuration(const std::string& path);

/// Puts the families of the configuration into force. `file` is the configuration file, which errors name. Must be
/// called once, while the process has one thread.
[[nodiscard]] Result<void> change_families(const Settings& settings, const std::string& file);

/// Fills in what was not given (store, default --also) and refuses settings that cannot work together.
[[nodiscard]] Result<void> complete(Settings& settings, const User& user, const Environment& environment);

/// Returns owner and mode of a mount over a directory with those of `covered`. kInvalid for a user or group that this
/// host does not know. The process must have one thread.
[[nodiscard]] Result<Ownership> shown_ownership(const Settings& settings, Ownership covered);

/// Returns the default places: what torch keeps in `torch`, its default directory.
[[nodiscard]] std::vector<Also> default_places(const std::string& torch);

/// A mount of root serves the mountpoint's owner: the default places are where that user's torch looks. Before, they
/// are where this process's user looks.
void give_default_places(Settings& settings, const User& owner);

/// Returns why a mount with these settings publishes nothing, as explanations say it; empty if it publishes, and for a
/// mount without a remote.
[[nodiscard]] std::string why_nothing_is_published(const Settings& settings);

/// Reads a number of bytes as people write it: "512", "20G", "20 GiB", "20gb", "1.5G". K, M, G and T are powers of 1024
/// in each of these forms; a fraction needs a unit and has at most six digits.
[[nodiscard]] Result<uint64_t> parse_size(std::string_view text);

}  // namespace inductorfs::config
