#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static inline struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(context);
	return context;
}

/* A queue pair in INIT. */
static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { 16, 16, 2, 2, 64 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS) == 0);
	return qp;
}

/* `timeout`: for an answer, as a code. `rnr_retry`: tries where the peer has no receive, 7: without end. */
static inline void connect_with(struct ibv_qp *qp, uint32_t peer, uint8_t timeout, uint8_t rnr_retry)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
				    .max_dest_rd_atomic = 1, .min_rnr_timer = 1 };

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	CHECK(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 1,
				     .rnr_retry = rnr_retry, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static inline void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	connect_with(qp, peer, 8, 1);
}

static inline int write_to(struct ibv_qp *qp, struct ibv_mr *from, uint32_t length, uint64_t to,
			   uint32_t rkey)
{
	struct ibv_sge entry = { (uintptr_t)from->addr, length, from->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static inline enum ibv_wc_status polled(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc.status;
}
