/* So many of everything: `programs/traced.rs` knows how many. */

static char memory[1 << 16] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS) == 0);
}

static struct ibv_qp *make(struct ibv_cq *queue, struct ibv_srq *srq, int ex)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = queue, .recv_cq = queue, .srq = srq,
					    .qp_type = IBV_QPT_RC, .cap = { 16, 16, 2, 2, 64 }, .pd = pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD };
	struct ibv_qp *qp;

	if (ex) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |
				      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW |
				      IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
	}
	qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	to_init(qp);
	return qp;
}

static void pair_up(struct ibv_qp *one, struct ibv_qp *two)
{
	connect_to(one, two->qp_num);
	connect_to(two, one->qp_num);
}

static struct ibv_sge part(int at, int length)
{
	return (struct ibv_sge){ (uintptr_t)memory + at, length, mr->lkey };
}

/* Posts `count` in one list, the last of which is told of, and all if `all`. */
static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, int count, int flags, int all)
{
	struct ibv_sge entries[32];
	struct ibv_send_wr wrs[32] = { 0 }, *bad = NULL;
	int result;

	for (int at = 0; at < count; at++) {
		entries[at] = part(64 * at, opcode < IBV_WR_ATOMIC_CMP_AND_SWP ? 32 : 8);
		wrs[at] = (struct ibv_send_wr){ .wr_id = at, .sg_list = &entries[at], .num_sge = 1,
						.opcode = opcode, .next = at + 1 < count ? &wrs[at + 1] : NULL };
		wrs[at].send_flags = flags | (all || at + 1 == count ? IBV_SEND_SIGNALED : 0);
		if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wrs[at].wr.atomic.remote_addr = (uintptr_t)memory + 4096;
			wrs[at].wr.atomic.rkey = mr->rkey;
		} else {
			wrs[at].wr.rdma.remote_addr = (uintptr_t)memory + 4096 + 64 * at;
			wrs[at].wr.rdma.rkey = mr->rkey;
		}
	}
	result = ibv_post_send(qp, wrs, &bad);
	return result ? (int)(bad - wrs) : count;
}

static void receives(struct ibv_qp *qp, struct ibv_srq *srq, int count)
{
	struct ibv_sge entries[32];
	struct ibv_recv_wr wrs[32], *bad;
	static int places;

	for (int at = 0; at < count; at++) {
		/* No two in flight have the same. */
		entries[at] = part(8192 + 64 * (places++ % 32), 64);
		wrs[at] = (struct ibv_recv_wr){ .wr_id = 100 + at, .sg_list = &entries[at], .num_sge = 1,
						.next = at + 1 < count ? &wrs[at + 1] : NULL };
	}
	CHECK((srq ? ibv_post_srq_recv(srq, wrs, &bad) : ibv_post_recv(qp, wrs, &bad)) == 0);
}

static void take(int count)
{
	for (int at = 0; at < count; at++)
		CHECK(polled(cq) == IBV_WC_SUCCESS);
}

static void registrations(void)
{
	for (int at = 0; at < 5; at++) {
		struct ibv_mr *again = ibv_reg_mr(pd, memory + 32768, 4096, IBV_ACCESS_LOCAL_WRITE);

		CHECK(again && ibv_dereg_mr(again) == 0);
	}
	/* Never used, and never given back. */
	CHECK(ibv_reg_mr(pd, memory + 16384, 4096, 0));
	CHECK(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
	CHECK(ibv_reg_mr(NULL, memory, 4096, 0) == NULL && errno == EINVAL);
	mr = ibv_reg_mr_iova(pd, memory + 40960, 4096, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ) == 0);
	CHECK(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0);
	/* Both of its names: the inline function's choice depends on whether the rights are constant. */
	mr = ibv_reg_mr(pd, memory, 12288, RIGHTS);
	CHECK(mr);
}

/* Every operation, in lists. */
static void lists(void)
{
	struct ibv_qp *one = make(cq, NULL, 0), *two = make(cq, NULL, 0);
	struct ibv_send_wr wr = { .num_sge = -1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc[4];

	pair_up(one, two);
	CHECK(ibv_poll_cq(cq, 4, wc) == 0);
	receives(two, NULL, 5);
	receives(two, NULL, 5);
	CHECK(post(one, IBV_WR_SEND, 6, 0, 0) == 6);
	CHECK(post(one, IBV_WR_SEND, 4, IBV_SEND_INLINE, 1) == 4);
	take(10 + 5);
	CHECK(post(one, IBV_WR_RDMA_WRITE, 10, 0, 0) == 10);
	take(1);
	CHECK(post(one, IBV_WR_RDMA_WRITE, 10, 0, 0) == 10);
	take(1);
	CHECK(post(one, IBV_WR_RDMA_READ, 1, 0, 0) == 1);
	take(1);
	CHECK(post(one, IBV_WR_RDMA_READ, 2, 0, 0) == 2);
	take(1);
	CHECK(post(one, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 0) == 1);
	take(1);
	CHECK(post(one, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 0, 0) == 1);
	take(1);
	/* More than there is room for; what is no list of entries; and one without an end. */
	CHECK(post(one, IBV_WR_RDMA_WRITE, 20, 0, 1) == 16);
	take(16);
	wr.sg_list = &(struct ibv_sge){ 0 };
	CHECK(ibv_post_send(one, &wr, &bad) == EINVAL && bad == &wr);
	wr = (struct ibv_send_wr){ .next = &wr, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED };
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_post_send(one, &wr, &bad) == ENOMEM && bad == &wr);
	take(16);
	CHECK(ibv_post_send(one, NULL, &bad) == 0);
	/* The third is refused by the peer, and what comes after it is flushed. */
	receives(one, NULL, 2);
	CHECK(post(one, IBV_WR_RDMA_WRITE, 2, 0, 1) == 2);
	take(2);
	CHECK(write_to(one, mr, 8, (uintptr_t)memory, mr->rkey + 1) == 0);
	CHECK(polled(cq) == IBV_WC_REM_ACCESS_ERR);
	CHECK(polled(cq) == IBV_WC_WR_FLUSH_ERR && polled(cq) == IBV_WC_WR_FLUSH_ERR);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
}

static void windows(void)
{
	struct ibv_qp *one = make(cq, NULL, 0), *two = make(cq, NULL, 0);
	struct ibv_mw *first = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *second = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = { .wr_id = 7, .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = { mr, (uintptr_t)memory, 4096, IBV_ACCESS_REMOTE_READ } };
	struct ibv_send_wr wr = { .wr_id = 8, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;

	CHECK(first && second);
	pair_up(one, two);
	for (int at = 0; at < 3; at++) {
		/* The last unbinds. */
		bind.bind_info.length = at == 2 ? 0 : 4096;
		CHECK(ibv_bind_mw(one, first, &bind) == 0);
		take(1);
	}
	for (int at = 0; at < 2; at++) {
		wr.opcode = IBV_WR_BIND_MW;
		wr.bind_mw.mw = second;
		wr.bind_mw.rkey = ibv_inc_rkey(second->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE };
		CHECK(ibv_post_send(two, &wr, &bad) == 0);
		take(1);
		if (at == 0) {
			wr.opcode = IBV_WR_LOCAL_INV;
			wr.invalidate_rkey = second->rkey;
			CHECK(ibv_post_send(two, &wr, &bad) == 0);
			take(1);
		}
	}
	receives(two, NULL, 1);
	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.invalidate_rkey = second->rkey;
	CHECK(ibv_post_send(one, &wr, &bad) == 0);
	take(2);
	CHECK(ibv_dealloc_mw(first) == 0 && ibv_dealloc_mw(second) == 0);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
}

static void shared(void)
{
	struct ibv_srq_init_attr init = { .attr = { 16, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_qp *one = make(cq, NULL, 0), *two = make(cq, srq, 0);

	CHECK(srq);
	pair_up(one, two);
	receives(NULL, srq, 6);
	CHECK(post(one, IBV_WR_SEND, 5, 0, 1) == 5);
	take(10);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
}

static void write_one(struct ibv_qp_ex *ex, uint64_t id, int flags)
{
	ex->wr_id = id;
	ex->wr_flags = flags;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory + 4096);
}

/* Work requests built call by call, completions taken one by one. */
static void extended(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 64, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *queue = ibv_create_cq_ex(context, &init);
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_qp *one, *two;
	struct ibv_qp_ex *ex;
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = { mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE };
	struct ibv_sge list[2] = { part(0, 8), part(64, 8) };
	int taken = 0;

	CHECK(queue && mw);
	one = make(ibv_cq_ex_to_cq(queue), NULL, 1);
	two = make(ibv_cq_ex_to_cq(queue), NULL, 1);
	pair_up(one, two);
	receives(two, NULL, 2);
	ex = ibv_qp_to_qp_ex(one);
	CHECK(ex);
	CHECK(ibv_start_poll(queue, &attr) == ENOENT);

	ibv_wr_start(ex);
	for (int at = 0; at < 3; at++) {
		write_one(ex, at, 0);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	}
	write_one(ex, 3, 0);
	ibv_wr_set_sge_list(ex, 2, list);
	ex->wr_id = 4;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, memory, 16);
	ex->wr_flags = 0;
	ibv_wr_atomic_fetch_add(ex, mr->rkey, (uintptr_t)memory + 4096, 1);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	ex->wr_id = 6;
	ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(mw->rkey), &info);
	ex->wr_id = 7;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_local_inv(ex, ibv_inc_rkey(mw->rkey));
	CHECK(ibv_wr_complete(ex) == 0);

	/* Given up, and refused. */
	ibv_wr_start(ex);
	for (int at = 0; at < 2; at++) {
		write_one(ex, at, 0);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	}
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	for (int at = 0; at < 40; at++) {
		write_one(ex, at, IBV_SEND_SIGNALED);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	}
	CHECK(ibv_wr_complete(ex) == ENOMEM);

	while (taken < 3) {
		int result = ibv_start_poll(queue, &attr);

		if (result == ENOENT)
			continue;
		CHECK(result == 0);
		do {
			CHECK(queue->status == IBV_WC_SUCCESS);
			taken++;
			result = ibv_next_poll(queue);
		} while (result == 0);
		CHECK(result == ENOENT);
		ibv_end_poll(queue);
	}
	CHECK(ibv_dealloc_mw(mw) == 0);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == EBUSY);
	/* A receive is left: it is gone with its queue pair. */
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
}

/* What is reset is not in flight any more. */
static void resets(void)
{
	struct ibv_qp *qp = make(cq, NULL, 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_mr *whole = mr;

	mr = ibv_reg_mr(pd, memory + 8192, 8192, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	receives(qp, NULL, 3);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	mr = whole;
	to_init(qp);
	CHECK(ibv_destroy_qp(qp) == 0);
}

int main(void)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && cq);
	registrations();
	lists();
	windows();
	shared();
	extended();
	resets();
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_close_device(context) == 0);
	CHECK(ibv_close_device(context) == EINVAL);
	puts("well");
	return 0;
}
