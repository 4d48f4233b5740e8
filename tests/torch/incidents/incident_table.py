# SPDX-License-Identifier: Apache-2.0
"""The incident table: what went wrong, or was made twice, with compile caches that hosts share; the tests that hold this
mount to the right answer, for a reader on the host and for one in a container; and what a plain directory on a shared file
system does in its place. test_table.py holds it complete: each line has both kinds of tests, each test of this directory a line."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    what: str
    tests: tuple
    contained: tuple
    plain: str  # what a directory without a gate does; "shown" where the test itself shows it


WRONG_REUSE = (
    Line("C++ kernel of AVX-512 on a host with AVX2", ("test_library_of_avx512_on_a_host_with_avx2",),
         ("test_in_a_container_nothing_of_another_cpu_or_libc",),
         "same name, loaded, SIGILL at the first call (shown on an emulated CPU)"),
    Line("vec-ISA probe of another CPU", ("test_vec_isa_probe_of_another_cpu",),
         ("test_in_a_container_nothing_of_another_cpu_or_libc",),
         "the marker is believed, the probe's library not even loaded (shown)"),
    Line("library that needs a newer glibc", ("test_library_that_needs_a_newer_glibc",),
         ("test_in_a_container_nothing_of_another_cpu_or_libc", "test_in_a_container_no_library_that_needs_a_newer_glibc"),
         "dlopen fails: version not found; torch does not catch it (shown)"),
    Line("CUDA 12 object under CUDA 13", ("test_objects_of_cuda_12_under_cuda_13",),
         ("test_in_a_container_no_object_of_cuda_12",),
         "dlopen fails: libcudart.so.12 is not there (shown)"),
    Line("best_config of an H200 on an H100", ("test_tuning_of_an_h200_on_an_h100",),
         ("test_in_a_container_no_tuning_of_another_device",),
         "equal names: the H100 takes it and measures nothing (shown)"),
    Line("autotune result of a device that was replaced", ("test_tuning_of_a_device_that_was_replaced",),
         ("test_in_a_container_no_tuning_of_another_device",),
         "stays"),
    Line("cubin for sm_90 before sm_80", (
        "test_cubin_for_sm_90_in_a_key_directory_of_sm_80", "test_kernel_for_sm_90_is_not_seen_before_sm_80"),
         ("test_in_a_container_no_kernel_for_another_architecture", "test_in_a_container_no_broken_set"),
         "Triton reads it without a word (shown); the driver has no kernel image then (needs a device)"),
    Line("Triton set with children of two writers", ("test_set_with_children_of_two_writers",),
         ("test_in_a_container_a_set_of_one_writer_for_any_device",),
         "a kernel loaded from files of both (shown)"),
    Line("__grp__ that names a child that is not there", ("test_group_that_names_a_child_that_is_not_there",),
         ("test_in_a_container_no_broken_set",),
         "a miss in each process for ever; up to Triton 3.6 a KeyError (the miss is shown)"),
    Line("__grp__ that names a child outside", ("test_group_that_names_a_child_outside",),
         ("test_in_a_container_no_broken_set",),
         "Triton takes the file from there (shown)"),
    Line("fxgraph cut off at each 4 KiB", ("test_graph_that_is_cut_off_at_every_page",),
         ("test_in_a_container_no_graph_that_is_cut_off",),
         "a warning and a compile in each process; up to torch 2.7 a crash for its other pickles"),
    Line("temporary names listed", (
        "test_temporary_names_are_never_listed", "test_temporary_names_of_every_protocol_stay_where_they_are"),
         ("test_in_a_container_no_temporary_name",),
         "read as candidates up to torch 2.10; two hosts write one file"),
    Line("content that does not match its name", (
        "test_content_that_does_not_match_its_name", "test_graph_with_another_constant_runs_on_a_plain_directory",
        "test_timings_under_the_name_of_another_system"),
         ("test_in_a_container_no_content_that_does_not_match_its_name",
          "test_in_a_container_no_timings_under_the_name_of_another_system"),
         "a hit, and another result (shown)"),
    Line("torch of equal version and other content", ("test_torch_of_equal_version_and_other_content",),
         ("test_in_a_container_nothing_of_a_torch_with_other_content",),
         "kernels built with the other headers run on (shown)"),
    Line("other TRITON_DEFAULT_FP_FUSION", ("test_graph_made_under_another_fp_fusion",),
         ("test_in_a_container_no_graph_of_another_fp_fusion",),
         "a full hit with kernels of the other setting (shown)"),
)

ELSEWHERE = "test_another_mount_path_user_home_hostname_and_order_of_the_environment"

NEEDLESS_MISS = (
    Line("other mount path", (ELSEWHERE,),
         ("test_a_job_in_a_container_hits",),
         "__grp__ holds paths: Triton misses, or reads the old root"),
    Line("triton/0 and triton/5", ("test_another_device_index",),
         ("test_in_a_container_a_set_of_one_writer_for_any_device",),
         "two directories: compiled twice"),
    Line("other user and home", (ELSEWHERE,),
         ("test_a_job_in_a_container_hits",),
         "another default directory"),
    Line("other hostname", (ELSEWHERE,),
         ("test_a_job_in_a_container_hits",),
         "a hit"),
    Line("torch reinstalled at another path", ("test_torch_reinstalled_at_another_path_with_equal_content",),
         ("test_a_container_with_torch_at_another_path_hits",),
         "the same: graphs hit, C++ kernels and Triton's cuda_utils have names with paths in them"),
    Line("newer driver patch level", ("test_newer_patch_level_of_the_driver",),
         ("test_a_container_before_a_gpu_hits",),
         "a hit"),
    Line("other order of CUDA_VISIBLE_DEVICES", ("test_another_order_of_equal_devices",),
         ("test_a_container_before_a_gpu_hits",),
         "a hit"),
    Line("other order of the environment", (ELSEWHERE,),
         ("test_a_job_in_a_container_hits",),
         "a hit"),
    Line("node without a compiler and ptxas", ("test_a_node_without_a_compiler", "test_a_node_without_ptxas"),
         ("test_a_container_of_another_image_hits", "test_a_container_before_a_gpu_hits"),
         "what torch can do with a complete local cache"),
    Line("interpreter at another path", ("test_an_interpreter_at_another_path",),
         ("test_a_container_of_another_image_hits",),
         "a hit"),
)

CONTROLS = ("test_first_node_compiles",)
