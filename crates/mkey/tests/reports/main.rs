//! What cost people days, as tests: each named after a public report of it (project and number of
//! the issue or pull request), with the behaviour that the report wished for.
//!
//! | case | reports | test, or why there is none here |
//! |---|---|---|
//! | 1 mappings split by fork support | Mooncake 3639, UCX 6264, 8702 | [`system::mooncake_3639_alternate_pages_do_not_use_up_the_mappings`] |
//! | 2 EINVAL on huge pages | Mooncake 3845, FlexKV 275 | [`registration::mooncake_3845_huge_pages_are_registered_by_any_length`] |
//! | 3 memory lock limit | nvidia-container-toolkit 2037, nccl-tests 206 | [`system::nvidia_container_toolkit_2037_the_memlock_error_tells_the_figures`], [`system::kubekey_2609_a_limit_of_nothing_is_told_apart`] |
//! | 4 read-only memory, full access asked | mxl 516, UCX 4924, libfabric 6467 | [`registration::mxl_516_read_only_memory_is_registered_with_the_rights_it_can_have`], `mxl_516_*` of the cache |
//! | 5 static key, buffer used again | nbs 5708, 6542 | grants: their own tests |
//! | 6 registration clipped to a limit | Mooncake 2017, mori 251 | [`registration::mooncake_2017_a_registration_is_never_clipped`] |
//! | 7 stale after munmap and mmap | libfabric-cray 1000, libfabric 4946 | [`lifetime::libfabric_4946_a_mapping_replaced_under_a_registration_is_not_accessed`]; `libfabric_cray_1000_*` and `libfabric_4946_*` of the cache |
//! | 8 deadlock in the cache's hooks | libfabric 5554, 9594 | `libfabric_5554_*` of the cache |
//! | 11 key rounded to the page, region not | aws-ofi-nccl 685 | [`registration::aws_ofi_nccl_685_two_buffers_of_one_page_are_two_registrations`], `aws_ofi_nccl_685_*` of the cache |
//! | 12 freed while work is in flight | pegaflow 403, async-rdma 47, nbs 6938 | [`lifetime::pegaflow_403_a_buffer_of_a_lost_request_is_in_use_until_the_queue_pair_has_drained`], [`lifetime::async_rdma_47_a_buffer_dropped_in_flight_stays_registered`]; grants: their own tests |
//! | 13 child broken by fork | rdma-core 1222, 883, byteps 54 | [`system::rdma_core_1222_a_forked_child_has_all_of_the_memory`] |
//! | 14 out of memory regions | SPDK 902, arkouda 271 | [`registration::spdk_902_the_limit_of_regions_is_told_before_and_at_it`] |
//! | 15 EBUSY at deregistration | NetworkDirect 20, VCCL 36 | [`lifetime::networkdirect_20_a_region_in_use_names_its_holder_and_stays`], [`lifetime::torchcomms_4209_a_domain_ends_after_all_that_is_in_it`] |
//! | 17 on-demand paging and retries; lengths as `int` | disni 39, rdma-core 834, UCX 11914 | [`registration::disni_39_a_region_longer_than_2_gib_is_all_there`], [`access::rdma_core_834_page_faults_need_no_retries`], [`access::ucx_11914_read_only_pages_fail_at_once`] |
//! | 18 SIGBUS at the first touch of a huge page | kubernetes 71233, cloud-hypervisor 7387, SPDK 597 | [`system::kubernetes_71233_pages_that_are_promised_are_there`] |
//! | 19 remote key used as local key | uccl 1040, async-rdma 43 | [`access::uccl_1040_a_key_of_the_wrong_role_is_refused_as_that`] |
//! | 20 memory of files | SPDK 2305, rpma 1197 | [`registration::spdk_2305_memory_of_files_is_registered_or_the_reason_told`] |
//! | 21 keys leaked by crashes | UCX 6264 | `ucx_mlx_21_*` of the cache; the rest needs a NIC's firmware |
//! | 22 relaxed ordering | DeepEP 40, rdma-core 1413 | [`access::rdma_core_1413_relaxed_ordering_is_a_wish`] |
//! | 23 registered again and again | DingoCache 88, nixl 77 | [`lifetime::dingocache_88_a_registration_outlives_its_queue_pairs`], `dingocache_88_*` of the cache |
//! | 24, 25, 26 memory of GPUs | libfabric 8081, nv_peer_memory 101, PyTorch 153688 | need a GPU |
//! | 27 EMFILE | libfabric 12828, daqiri 148 | [`system::libfabric_12828_registrations_use_up_no_file_descriptors`] |
//! | 28 errno 524, page offsets | UCX 11584, libfabric 9441, perftest 237 | [`registration::ucx_11584_page_offsets_that_differ_are_refused_before_the_device`], [`registration::ucx_11584_errno_524_has_a_name`] |
//! | 30 control group of the NIC | libfabric 8256 | needs a kernel with RDMA |
//! | 31 key of a window stale after its bind | pyverbs 1777 | grants: their own tests |
//! | 32 not validated before the device | irdma 1107 | [`access::irdma_1107_advice_is_validated`]; grants: their own tests |
//! | 34 code patched at run time | UCX 8475, 5855 | [`system::ucx_8475_no_code_is_patched`] |
//!
//! The other numbers of the list that this follows are about things that are not registration.

#[path = "../common/mod.rs"]
mod common;
mod memory;

mod access;
mod lifetime;
mod promises;
mod registration;
mod system;
