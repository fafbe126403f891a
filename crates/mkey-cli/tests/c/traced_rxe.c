/* Some of everything that soft-RoCE has, with a queue pair that is connected to another one here. */

static char memory[1 << 16] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* The first place of the table with an IPv4 address. */
static int place(union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	for (int at = 0; at < 16; at++)
		if (ibv_query_gid(context, 1, at, gid) == 0 && memcmp(gid->raw, mapped, 12) == 0)
			return at;
	CHECK(!"no address");
	return -1;
}

static void connect_by_address(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
				    .max_dest_rd_atomic = 1, .min_rnr_timer = 1 };

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = place(&attr.ah_attr.grh.dgid);
	attr.ah_attr.grh.hop_limit = 64;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct ibv_qp *make(struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
					    .cap = { 16, 16, 2, 2, 64 }, .pd = pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);

	CHECK(qp);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS) == 0);
	return qp;
}

int main(void)
{
	struct ibv_srq_init_attr init = { .attr = { 16, 1, 0 } };
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	struct ibv_srq *srq;
	struct ibv_qp *one, *two;
	struct ibv_qp_ex *ex;
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && cq);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_MW_BIND);
	CHECK(mr);
	CHECK(ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
	srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	one = make(NULL);
	two = make(srq);
	connect_by_address(one, two->qp_num);
	connect_by_address(two, one->qp_num);
	for (int at = 0; at < 3; at++) {
		struct ibv_sge entry = { (uintptr_t)memory + 4096 + 64 * at, 64, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = 50 + at, .sg_list = &entry, .num_sge = 1 }, *bad;

		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	}
	for (int at = 0; at < 10; at++) {
		CHECK(write_to(one, mr, 32, (uintptr_t)memory + 8192, mr->rkey) == 0);
		CHECK(polled(cq) == IBV_WC_SUCCESS);
	}
	ex = ibv_qp_to_qp_ex(one);
	CHECK(ex);
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	for (int at = 0; at < 4; at++) {
		ex->wr_id = at;
		ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory + 8192);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 16);
	}
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 16);
	CHECK(ibv_wr_complete(ex) == 0);
	CHECK(polled(cq) == IBV_WC_SUCCESS && polled(cq) == IBV_WC_SUCCESS);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(mw);
	bind.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ };
	CHECK(ibv_bind_mw(one, mw, &bind) == 0 && polled(cq) == IBV_WC_SUCCESS);
	CHECK(ibv_dealloc_mw(mw) == 0);
	CHECK(write_to(one, mr, 32, (uintptr_t)memory, mr->rkey + 0x100) == 0);
	CHECK(polled(cq) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_destroy_srq(srq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	puts(ibv_get_device_name(context->device));
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
