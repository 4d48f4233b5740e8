// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/jobs/job_records.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "fake_packages.h"
#include "inductorfs/base/fd.h"
#include "support/temporary_directory.h"
#include "writers_fixture.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::Program;
using testing::write_text;

const std::string kHead = "inductorfs-processes 1 boot\n";
const std::string kLine = "12 1 2 3 00ff\n";

ProcessIdentity identity_of(pid_t pid) {
  const auto stat = ProcReader("/proc").stat_of(pid);
  return stat ? stat->identity : ProcessIdentity{};
}
JobRecord record_of(const Program& program, const std::string& environment = "00ff") {
  return {program.pid(), identity_of(program.pid()), environment};
}
std::string boot() {
  std::string text = read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64).value();
  text.pop_back();
  return text;
}

class JobRecordsTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OWN_PROC(); }
  [[nodiscard]] std::vector<JobRecord> read(size_t limit = 16) const {
    return JobRecords(file_, "/proc", limit).earlier();
  }
  [[nodiscard]] std::string text() const { return read_file(AT_FDCWD, file_, 1 << 20).value_or(""); }

  TemporaryDirectory temporary_;
  const std::string file_ = temporary_ / "processes";
};

TEST(JobRecordsText, HasARecordOnEachLine) {
  const auto records = parse_job_records(kHead + kLine + "13 18446744073709551615 0 1 unknown\n", "boot");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0], (JobRecord{12, {1, 2, 3}, "00ff"}));
  EXPECT_EQ(records[1], (JobRecord{13, {UINT64_MAX, 0, 1}, ""}));
}

TEST(JobRecordsText, MeansNothingAfterAnotherBoot) {
  EXPECT_TRUE(parse_job_records(kHead + kLine, "later").empty());
  EXPECT_TRUE(parse_job_records("inductorfs-processes 1 \n" + kLine, "").empty());
  EXPECT_TRUE(parse_job_records("inductorfs-processes 2 boot\n" + kLine, "boot").empty());
  EXPECT_TRUE(parse_job_records(kLine + kHead, "boot").empty());
  EXPECT_TRUE(parse_job_records("", "boot").empty());
}

TEST(JobRecordsText, LeavesOutWhatIsNoRecord) {
  const std::string bad[] = {"",
                             "12",
                             "12 1 2 3",
                             "12 1 2 3 ",
                             "12 1 2 3 00ff ",
                             "12 1 2 3 00ff 4",
                             " 12 1 2 3 00ff",
                             "12  1 2 3 00ff",
                             "0 1 2 3 00ff",
                             "-12 1 2 3 00ff",
                             "12x 1 2 3 00ff",
                             "99999999999 1 2 3 00ff",
                             "12 18446744073709551616 2 3 00ff",
                             "12 1 2 3 ../x",
                             "12 1 2 3 00FF",
                             std::string("12 1 2 3 0\0f", 12),
                             "12 1 2 3 " + std::string(65, 'a')};
  for (const std::string& line : bad) {
    const auto records = parse_job_records(kHead + line + "\n" + kLine, "boot");
    ASSERT_EQ(records.size(), 1U) << line;
    EXPECT_EQ(records[0].pid, 12) << line;
  }
  EXPECT_TRUE(parse_job_records(kHead + "12 1 2 3 00ff", "boot").empty()) << "its write was cut off";
}

TEST_F(JobRecordsTest, OutliveTheirWriter) {
  const Program one;
  const Program two;
  {
    JobRecords records(file_, "/proc", 16);
    records.add(record_of(one));
    records.add(record_of(two, ""));
    records.add(record_of(one, "0100"));
  }
  const std::vector<JobRecord> expected{record_of(two, ""), record_of(one, "0100")};
  EXPECT_EQ(read(), expected);
  EXPECT_EQ(read(), expected) << "once more, from what was written anew";
  struct stat status {};
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(JobRecordsTest, GoWithTheirProcesses) {
  Program one;
  const Program two;
  {
    JobRecords records(file_, "/proc", 16);
    records.add(record_of(one));
    records.add({two.pid(), {1, 2, 3}, "00ff"});  // another process that had this id
  }
  one.end();
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(text(), "inductorfs-processes 1 " + boot() + "\n");
}

TEST_F(JobRecordsTest, AreNotReadFromWhatIsNoFileOfTheirs) {
  write_text(file_, std::string(1 << 20, 'x'));
  EXPECT_TRUE(read().empty());
  ASSERT_EQ(::unlink(file_.c_str()), 0);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_TRUE(read().empty()) << "and it does not wait";
}

TEST_F(JobRecordsTest, AreAtMostSoMany) {
  const Program programs[3];
  {
    JobRecords records(file_, "/proc", 2);
    for (const Program& program : programs) records.add(record_of(program));
    for (int round = 0; round < 20; ++round) {
      records.add(record_of(programs[1], round % 2 == 0 ? "00ff" : "0100"));
      EXPECT_LE(text().size(), 50 + 2 * 2 * 100U) << "the file is written anew now and then";
    }
  }
  const std::vector<JobRecord> expected{record_of(programs[2]), record_of(programs[1], "0100")};
  EXPECT_EQ(read(2), expected);
}

TEST_F(JobRecordsTest, GoOnWhenTheFileCannotBeWritten) {
  const std::string directory = temporary_ / "missing";
  JobRecords records(directory + "/processes", "/proc", 16);
  const Program program;
  records.add(record_of(program));
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  records.add(record_of(program));
  EXPECT_EQ(JobRecords(directory + "/processes", "/proc", 16).earlier().size(), 1U);
}

TEST_F(JobRecordsTest, AreNotKeptWhereTheBootIsNotKnown) {
  const Program program;
  JobRecords records(file_, temporary_.path(), 16);
  records.add(record_of(program));
  EXPECT_NE(::access(file_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace inductorfs::fingerprint
