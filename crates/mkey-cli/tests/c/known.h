/* What generated programs of a known pattern are made of. */

#define EACH (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;

static void connect_side(struct side *side, const struct side *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12 };

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.hop_limit = 1;
	CHECK(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* Two queue pairs of this process, connected to each other. */
static void make_sides(struct side sides[2])
{
	for (int i = 0; i < 2; i++) {
		CHECK((sides[i].cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
		sides[i].qp = make_qp(pd, sides[i].cq);
	}
	connect_side(&sides[0], &sides[1]);
	connect_side(&sides[1], &sides[0]);
}

static void end_sides(struct side sides[2])
{
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_qp(sides[i].qp) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_cq(sides[i].cq) == 0);
}

static struct ibv_mr *reg(void *memory, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, access);

	CHECK(mr);
	return mr;
}

/* Memory of its own mapping, its pages in. */
static char *pages(size_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

static enum ibv_wc_status post_and_poll(struct side *side, enum ibv_wr_opcode opcode, uint64_t addr,
					uint32_t length, uint32_t lkey, const struct ibv_mr *remote)
{
	struct ibv_sge entry = { addr, length, lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &entry, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (remote) {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->addr;
		wr.wr.rdma.rkey = remote->rkey;
	}
	CHECK(ibv_post_send(side->qp, &wr, &bad) == 0);
	return polled(side->cq);
}

static void receive_into(struct side *side, const struct ibv_mr *mr, uint64_t addr, uint32_t length)
{
	struct ibv_sge entry = { addr, length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &entry, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(side->qp, &wr, &bad) == 0);
}
