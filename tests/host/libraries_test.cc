// SPDX-License-Identifier: Apache-2.0
#include "libraries.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>

#include "inductorfs/base/fd.h"
#include "support/emulator.h"
#include "support/temporary_directory.h"

namespace inductorfs::host {
namespace {

/// A loader's cache as ldconfig writes it, with libraries of this machine's kind.
std::string cache_of(const std::map<std::string, std::string>& libraries, uint32_t kind = 0x0303) {
  std::string header = "glibc-ld.so.cache1.1";
  std::string entries;
  std::string strings;
  const size_t start = 48 + libraries.size() * 24;
  const auto put = [](std::string& out, uint32_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto keep = [&](const std::string& text) {
    const auto at = static_cast<uint32_t>(start + strings.size());
    strings += text + '\0';
    return at;
  };
  for (const auto& [soname, path] : libraries) {
    put(entries, kind);
    put(entries, keep(soname));
    put(entries, keep(path));
    entries.append(12, '\0');
  }
  put(header, static_cast<uint32_t>(libraries.size()));
  put(header, static_cast<uint32_t>(strings.size()));
  header.resize(48, '\0');
  return header + entries + strings;
}

TEST(LoaderCache, GivesThePathOfEachLibrary) {
  const std::string bytes = cache_of({{"liba.so.1", "/x/liba.so.1"}, {"libb.so", "/y/libb.so"}});
  const auto found = parse_loader_cache(bytes);
#if defined(__x86_64__)
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found.at("liba.so.1"), "/x/liba.so.1");
  EXPECT_EQ(parse_loader_cache("the older form goes first" + bytes).size(), 2U);
  // The 32-bit library of that name is no answer to a 64-bit job.
  EXPECT_TRUE(parse_loader_cache(cache_of({{"liba.so.1", "/x/liba.so.1"}}, 0x0003)).empty());
#endif
}

TEST(LoaderCache, TakesAnyBytes) {
  const std::string bytes = cache_of({{"liba.so.1", "/x/liba.so.1"}, {"libb.so", "/y/libb.so"}});
  for (size_t size = 0; size < bytes.size(); ++size) (void)parse_loader_cache(bytes.substr(0, size));
  std::string many = bytes;
  const uint32_t count = UINT32_MAX;
  std::memcpy(many.data() + 20, &count, sizeof count);
  EXPECT_TRUE(parse_loader_cache(many).empty());
  std::string outside = bytes;
  std::memcpy(outside.data() + 48 + 4, &count, sizeof count);
  EXPECT_LE(parse_loader_cache(outside).size(), 1U);
}

TEST(NewestVersion, ComparesNumbers) {
  EXPECT_EQ(newest_version("x GLIBCXX_3.4.9 y GLIBCXX_3.4.30\0GLIBCXX_3.4.4 GLIBCXX_DEBUG", "GLIBCXX_"), "3.4.30");
  EXPECT_EQ(newest_version("CXXABI_1.3.13 CXXABI_TM_1 CXXABI_1.3", "CXXABI_"), "1.3.13");
  EXPECT_EQ(newest_version("nothing", "GLIBCXX_"), "");
}

TEST(Libraries, AreFoundInGivenStandardAndCachedPlaces) {
  INDUCTORFS_NEEDS_NO_EMULATOR("a C library of this processor where the host has its own");
  const testing::TemporaryDirectory directory;
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory / "libgiven.so", "").has_value());
  ASSERT_TRUE(make_directories(directory / "cached").has_value());
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory / "cached/libcached.so.2", "").has_value());
  const std::string cache = directory / "ld.so.cache";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, cache,
                                    cache_of({{"libcached.so.2", directory / "cached/libcached.so.2"},
                                              {"libgone.so", directory / "libgone.so"}}))
                  .has_value());
  const Libraries libraries({directory.path()}, cache);

  EXPECT_EQ(libraries.find("libgiven.so"), directory / "libgiven.so");
#if defined(__x86_64__)
  EXPECT_EQ(libraries.find("libcached.so.2"), directory / "cached/libcached.so.2");
#endif
  EXPECT_TRUE(libraries.resolves("libc.so.6"));
  EXPECT_FALSE(libraries.resolves("libgone.so"));
  EXPECT_FALSE(libraries.resolves(""));
  EXPECT_TRUE(libraries.resolves(directory / "libgiven.so"));
}

TEST(Libraries, AreFoundWhenTheyAreInstalledLater) {
  const testing::TemporaryDirectory directory;
  const Libraries impatient({directory.path()}, "/nonexistent", Milliseconds(0));
  const Libraries patient({directory.path()}, "/nonexistent", Milliseconds(3'600'000));
  ASSERT_FALSE(impatient.resolves("libnew.so"));
  ASSERT_FALSE(patient.resolves("libnew.so"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory / "libnew.so", "").has_value());
  EXPECT_TRUE(impatient.resolves("libnew.so"));
  EXPECT_FALSE(patient.resolves("libnew.so"));
}

/// Such a path comes from an artefact, and may lie on a file system that does not answer.
TEST(Libraries, ByPathAreLookedForWhereAChildLooks) {
  const testing::TemporaryDirectory directory;
  const std::string here = directory / "libhere.so";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, here, "").has_value());
  std::vector<std::string> asked;
  const Libraries libraries({}, [&asked](const std::string& soname) {
    asked.push_back(soname);
    return soname == "/elsewhere/lib.so" ? soname : std::string();
  });
  EXPECT_EQ(libraries.find(here), "");
  EXPECT_EQ(libraries.find("/elsewhere/lib.so"), "/elsewhere/lib.so");
  EXPECT_EQ(libraries.find("/elsewhere/lib.so"), "/elsewhere/lib.so");
  EXPECT_EQ(asked, (std::vector<std::string>{here, "/elsewhere/lib.so"}));
}

TEST(Libraries, OfTheDriverAreAFactOfTheirOwn) {
  const Libraries none({}, "/nonexistent");
  EXPECT_TRUE(none.resolves("libcuda.so.1"));
  EXPECT_FALSE(none.resolves("libcudart_of_nobody.so.13"));
}

TEST(Libraries, KnowTheVersionsOfTheCompilersLibrary) {
  INDUCTORFS_NEEDS_NO_EMULATOR("a C library of this processor where the host has its own");
  const Libraries host({});
  EXPECT_EQ(host.newest_of_libstdcxx("GLIBCXX_").substr(0, 4), "3.4.");
  EXPECT_EQ(host.newest_of_libstdcxx("CXXABI_").substr(0, 2), "1.");
}

}  // namespace
}  // namespace inductorfs::host
