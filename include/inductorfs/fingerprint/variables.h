// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "inductorfs/fingerprint/fingerprint.h"

/// Environment variables that change what torch or Triton generate, but are missing in one of their keys. The functions
/// are pure, and safe for concurrent use. docs/decisions/0016 says which other variables were examined and left out,
/// and why.
namespace inductorfs::fingerprint {

/// Says which values of a variable mean the same as each other, or the same as unset.
enum class Reading {
  kOff,          ///< a switch that is off when unset: Triton takes on, true, yes and 1; everything else is off
  kOn,           ///< as kOff, but on when unset
  kSwitch,       ///< a switch of three states: unset lets the code choose, empty is off; another word is a text
  kTorchOff,     ///< a switch of torch's C++ code: 1 is on; everything else is the same as unset
  kTorchSwitch,  ///< as kTorchOff, but of three states: 0 is not the same as unset
  kNumber,       ///< a whole number as Python's int() reads it; 0 is the same as unset; another word is a text
  kText,         ///< taken as it is; empty is the same as unset
  kPasses,       ///< "on" for everything, or a list of names; off and empty are the same as unset
  kCapability,   ///< one of a few words; any other is ignored with a warning
  kFile,         ///< the path of a file, whose content counts and not its path (FileKind); empty is the same as unset
};

/// What a variable of Reading::kFile names.
struct FileKind {
  std::string_view what;  ///< for people
  /// The first bytes of such a file. A file that begins otherwise is not known: what a script does stands elsewhere.
  std::string_view magic;
  /// The file that is used when the variable is unset: this one below torch's directory if torch has it (torch then
  /// sets the variable itself; empty: never), else this one below Triton's directory.
  std::string_view in_torch;
  std::string_view in_triton;
};

struct Variable {
  std::string_view name;    ///< the whole name, or with a final `*` every variable that begins so
  std::string_view effect;  ///< what another value does to an artefact
  std::string_view source;  ///< where torch or Triton reads it, and which key leaves it out: file and function
  Reading reading;
  /// The variable matters to a family that depends on the environment and on all of these facets: a variable that is in
  /// Triton's key, but in none of torch's, is no reason to keep a Triton kernel private.
  std::span<const Facet> with;
  const FileKind* file = nullptr;  ///< of Reading::kFile alone
  /// The variable does not matter to a family that depends on one of these.
  std::span<const Facet> without{};
};
[[nodiscard]] std::span<const Variable> variables();
/// Returns the row for a variable, or nullptr when no row covers it.
[[nodiscard]] const Variable* find_variable(std::string_view name);
[[nodiscard]] bool matters(const Variable& variable, std::span<const Facet> facets);

/// Returns name and canonical value of each variable of variables() whose value does not mean the same as unset. This
/// reads no file: of a variable of Reading::kFile the path stays, in whose place content_value() comes once the file
/// was read.
[[nodiscard]] std::map<std::string, std::string> environment_values(
    const std::map<std::string, std::string>& environment);
/// Returns the canonical text of the environment facet: one line name=value for each of environment_values(), in name
/// order, or "none" when there are no such values.
[[nodiscard]] std::string environment_text(const std::map<std::string, std::string>& environment);
/// Returns the canonical values that environment_text() wrote.
[[nodiscard]] std::map<std::string, std::string> environment_from_text(std::string_view text);

/// The canonical values of a variable of Reading::kFile: the file's content, or why the content is not known. Families
/// that the variable matters to are private then.
[[nodiscard]] std::string content_value(const codec::Digest& digest);
[[nodiscard]] bool is_content_value(std::string_view value);
[[nodiscard]] std::string not_known_value(std::string_view why);
/// Returns the reason of not_known_value(); empty for any other value.
[[nodiscard]] std::string_view why_not_known(std::string_view value);
/// Returns "NAME: why" for the first variable of an environment facet's text whose content is not known; else empty.
[[nodiscard]] std::string unknown_file_in(std::string_view text);

}  // namespace inductorfs::fingerprint
