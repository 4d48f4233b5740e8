// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/base/counters.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/remote/remote.h"
#include "inductorfs/store/blob_store.h"
#include "inductorfs/vfs/file_system.h"

namespace inductorfs::vfs {

/// The parts that a file system works with in addition to its own tree. The caller of FileSystem::open() owns them, and
/// they must outlive the file system.
struct Services {
  const Host& host;
  catalog::Catalog& catalog;
  store::BlobStore& store;
  remote::Remote& remote;
  Counters& counters;
};

}  // namespace inductorfs::vfs
