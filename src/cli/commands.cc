// SPDX-License-Identifier: Apache-2.0
#include "cli/common/command.h"

namespace inductorfs::cli {
namespace {

constexpr CommandRow kCommands[] = {
    {"mount", "Mount the cache, and return when the mount answers", mount_command},
    {"unmount", "Unmount the cache and stop its daemon", unmount_command},
    {"status", "Show the state of the mount that a path lies in, or list all mounts of this host", status_command},
    {"sync", "Wait until everything that was written is published", sync_command},
    {"stats", "Show what programs asked for and found, missed and made, by family", stats_command},
    {"jobs", "List the jobs that use or used a mount: what each asked for, missed, made and waited for", jobs_command},
    {"why-miss", "Explain what a job missed: who has it under other facts, and what differs", why_miss_command},
    {"warm", "Fetch what the cluster has for this host before jobs need it", warm_command},
    {"export", "Write what a cluster has into a file", export_command},
    {"import", "Publish what such a file has and a cluster lacks", import_command},
    {"upgrade", "Replace the program that serves a mount, without unmounting it", upgrade_command},
    {"explain", "Explain why a path is visible or not: its family, scope and digest", explain_command},
    {"fingerprint", "Show the facts of this host, and with which hosts it shares", fingerprint_command},
    {"check", "Check a store that is not mounted for damage", check_command},
    {"doctor", "Look for what keeps mounts of this host, or one, from sharing, with a remedy for each", doctor_command},
    {"config", "Check the options that a mount would have, or show them and where each comes from", config_command},
    {"env",
     "Print the variables that put a user's compile caches into a mount, and the mkdir of the directories, which it "
     "does not run",
     env_command},
    {"metrics", "Print figures of all mounts of this host, or of one, for Prometheus", metrics_command},
    {"completion", "Print the completions of this program for a shell", completion_command},
    {"nodes", "List the mounts of the whole cluster", nodes_command},
    {"freeze", "Let no mount of the cluster show or publish anything, until --lift", freeze_command},
    {"purge", "Remove what is selected from the cluster and from all its mounts; without --yes only count it",
     purge_command},
    {"key", "Make a signing key, or show what a key's file has", key_command},
    {"acl", "Print the command that gives a user of the server the rights that a role needs, and no more", acl_command},
    {"gpu-probe", "", gpu_probe_command},
    {"package-facts", "", package_facts_command},
    {"host-facts", "", host_facts_command},
    {"host-places", "", host_places_command},
    {"worker", "", worker_command},
    {"examiner", "", examiner_command},
    {"mounter", "", mounter_command},
};

}  // namespace

std::span<const CommandRow> all_commands() { return kCommands; }

}  // namespace inductorfs::cli
