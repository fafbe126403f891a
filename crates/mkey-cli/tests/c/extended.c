/* What is asked for by structures that may grow, and what goes beyond the first verbs. */
#include <dlfcn.h>
#include <stddef.h>

static char memory[8192];

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
};

/* A queue pair that is connected to itself. */
static struct end make_end(void)
{
	struct end end = { .context = open_first() };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 2, 2, 64 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights };

	end.pd = ibv_alloc_pd(end.context);
	end.cq = ibv_create_cq(end.context, 64, NULL, NULL, 0);
	end.mr = ibv_reg_mr(end.pd, memory, sizeof memory, rights | IBV_ACCESS_MW_BIND);
	CHECK(end.pd && end.cq && end.mr);
	init.pd = end.pd;
	init.send_cq = init.recv_cq = end.cq;
	init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
			      IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_RDMA_READ;
	end.qp = ibv_create_qp_ex(end.context, &init);
	CHECK(end.qp);
	end.ex = ibv_qp_to_qp_ex(end.qp);
	CHECK(end.ex);
	CHECK(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS) == 0);
	connect_to(end.qp, end.qp->qp_num);
	return end;
}

static void write_eight(struct end *end, uint64_t id, int to)
{
	end->ex->wr_id = id;
	end->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(end->ex, end->mr->rkey, (uintptr_t)memory + to);
	ibv_wr_set_sge(end->ex, end->mr->lkey, (uintptr_t)memory, 8);
}

/* Work requests that are built call by call: all are posted, or none is. */
static void all_or_nothing(void)
{
	struct end end = make_end();
	struct ibv_mw *mw = ibv_alloc_mw(end.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = { end.mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE };
	uint32_t key;
	struct ibv_wc wc;

	CHECK(mw);
	key = mw->rkey;
	memset(memory, 0, sizeof memory);
	memory[0] = 7;
	/* The last takes one entry and has none: more of them than are looked at together. */
	ibv_wr_start(end.ex);
	end.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(end.ex, mw, ibv_inc_rkey(key), &info);
	for (int at = 1; at <= 12; at++)
		write_eight(&end, at, 64 * at);
	ibv_wr_atomic_fetch_add(end.ex, end.mr->rkey, (uintptr_t)memory + 4096, 1);
	CHECK(ibv_wr_complete(end.ex) == EINVAL);
	CHECK(ibv_poll_cq(end.cq, 1, &wc) == 0 && mw->rkey == key);
	for (int at = 1; at <= 12; at++)
		CHECK(memory[64 * at] == 0);
	/* More than there is room for. */
	ibv_wr_start(end.ex);
	for (int at = 0; at < 17; at++)
		write_eight(&end, at, 64);
	CHECK(ibv_wr_complete(end.ex) == ENOMEM);
	CHECK(ibv_poll_cq(end.cq, 1, &wc) == 0 && memory[64] == 0);
	/* An operation that the queue pair was not made with, a flag that is none. */
	ibv_wr_start(end.ex);
	write_eight(&end, 1, 64);
	ibv_wr_send(end.ex);
	CHECK(ibv_wr_complete(end.ex) == EOPNOTSUPP);
	ibv_wr_start(end.ex);
	write_eight(&end, 1, 64);
	end.ex->wr_flags = 1 << 20;
	ibv_wr_rdma_write(end.ex, end.mr->rkey, (uintptr_t)memory);
	CHECK(ibv_wr_complete(end.ex) == EINVAL);
	/* Given up. */
	ibv_wr_start(end.ex);
	write_eight(&end, 1, 64);
	ibv_wr_abort(end.ex);
	CHECK(ibv_poll_cq(end.cq, 1, &wc) == 0 && memory[64] == 0);
	/* And well. */
	ibv_wr_start(end.ex);
	end.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(end.ex, mw, ibv_inc_rkey(key), &info);
	for (int at = 1; at <= 12; at++)
		write_eight(&end, at, 64 * at);
	CHECK(ibv_wr_complete(end.ex) == 0);
	for (int at = 0; at <= 12; at++)
		CHECK(polled(end.cq) == IBV_WC_SUCCESS && (at == 0 || memory[64 * at] == 7));
	CHECK(mw->rkey == ibv_inc_rkey(key));
	CHECK(ibv_close_device(end.context) == 0);
}

/* Nobody has begun. */
static void out_of_turn(void)
{
	struct end end = make_end();
	struct ibv_cq_init_attr_ex init = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(end.context, &init);
	struct ibv_poll_cq_attr attr = { 0 }, unknown = { .comp_mask = 1 };
	struct ibv_wc wc;

	memset(memory, 0, sizeof memory);
	memory[0] = 7;
	write_eight(&end, 1, 64);
	CHECK(ibv_wr_complete(end.ex) == EINVAL);
	ibv_wr_abort(end.ex);
	ibv_wr_start(end.ex);
	CHECK(ibv_wr_complete(end.ex) == 0);
	CHECK(ibv_poll_cq(end.cq, 1, &wc) == 0 && memory[64] == 0);

	CHECK(cq);
	CHECK(ibv_next_poll(cq) == EINVAL);
	ibv_end_poll(cq);
	CHECK(ibv_start_poll(cq, &unknown) == EINVAL);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	CHECK(ibv_wc_read_byte_len(cq) == 0);
	init.wc_flags = 1ull << 40;
	CHECK(ibv_create_cq_ex(end.context, &init) == NULL);
	init = (struct ibv_cq_init_attr_ex){ .cqe = 4, .comp_mask = 1 << 20 };
	CHECK(ibv_create_cq_ex(end.context, &init) == NULL && errno == EOPNOTSUPP);
	CHECK(ibv_close_device(end.context) == 0);
}

/* The last `bytes` bytes before memory that may not be touched. */
static void *before_the_end(size_t bytes)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
	return pages + 4096 - bytes;
}

/* Structures of programs with older headers, which end earlier. */
static void shorter(void)
{
	struct end end = make_end();
	struct ibv_xrcd_init_attr domain = { .fd = -1, .oflags = O_CREAT,
					     .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(end.context, &domain);
	struct ibv_qp_init_attr_ex *receiving = before_the_end(offsetof(struct ibv_qp_init_attr_ex, create_flags));
	struct ibv_cq_init_attr_ex *queue = before_the_end(offsetof(struct ibv_cq_init_attr_ex, flags));
	struct ibv_srq_init_attr_ex *shared = before_the_end(offsetof(struct ibv_srq_init_attr_ex, xrcd));
	struct ibv_qp_attr *attr = before_the_end(offsetof(struct ibv_qp_attr, rate_limit));
	struct ibv_qp_init_attr init;
	union {
		struct ibv_qp_attr attr;
		uint64_t words[sizeof(struct ibv_qp_attr) / 8];
	} guarded;

	CHECK(xrcd);
	receiving->qp_type = IBV_QPT_XRC_RECV;
	receiving->comp_mask = IBV_QP_INIT_ATTR_XRCD;
	receiving->xrcd = xrcd;
	CHECK(ibv_create_qp_ex(end.context, receiving));
	queue->cqe = 4;
	CHECK(ibv_create_cq_ex(end.context, queue));
	shared->attr = (struct ibv_srq_attr){ 4, 1, 0 };
	shared->srq_type = IBV_SRQT_BASIC;
	shared->pd = end.pd;
	shared->comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	CHECK(ibv_create_srq_ex(end.context, shared));
	CHECK(ibv_query_qp(end.qp, attr, 0, &init) == 0 && attr->qp_state == IBV_QPS_RTS);
	attr->qp_state = IBV_QPS_ERR;
	CHECK(ibv_modify_qp(end.qp, attr, IBV_QP_STATE) == 0);
	/* The word behind is some other variable's. */
	memset(&guarded, 0xa5, sizeof guarded);
	CHECK(ibv_query_qp(end.qp, &guarded.attr, 0, &init) == 0 && guarded.attr.qp_state == IBV_QPS_ERR);
	CHECK(guarded.words[offsetof(struct ibv_qp_attr, rate_limit) / 8] == 0xa5a5a5a5a5a5a5a5);
	/* None at all, and what is not known. */
	CHECK(ibv_query_qp(end.qp, NULL, 0, &init) == EINVAL && ibv_modify_qp(end.qp, NULL, 0) == EINVAL);
	CHECK(ibv_modify_qp(end.qp, attr, IBV_QP_RATE_LIMIT) == EINVAL);
	shared = before_the_end(sizeof *shared);
	shared->comp_mask = 1 << 20;
	CHECK(ibv_create_srq_ex(end.context, shared) == NULL && errno == EOPNOTSUPP);
	CHECK(ibv_close_device(end.context) == 0);
}

static void device_memory(void)
{
	struct end end = make_end(), other = make_end();
	struct ibv_alloc_dm_attr attr = { .length = 4096 }, wrong = { .length = 64, .comp_mask = 1 };
	struct ibv_dm *dm = ibv_alloc_dm(end.context, &attr);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED;
	struct ibv_mr *mr;
	char copy[64];

	CHECK(dm);
	CHECK(ibv_alloc_dm(end.context, &wrong) == NULL && errno == EINVAL);
	wrong = (struct ibv_alloc_dm_attr){ .length = 64, .log_align_req = 40 };
	CHECK(ibv_alloc_dm(end.context, &wrong) == NULL && errno == EINVAL);
	wrong = (struct ibv_alloc_dm_attr){ .length = ~0ull };
	CHECK(ibv_alloc_dm(end.context, &wrong) == NULL);
	CHECK(ibv_memcpy_to_dm(dm, 100, "forty-two\0\0", 12) == 0);
	CHECK(ibv_memcpy_from_dm(copy, dm, 100, 12) == 0 && strcmp(copy, "forty-two") == 0);
	CHECK(ibv_memcpy_to_dm(dm, 4088, copy, 12) == EFAULT && ibv_memcpy_from_dm(copy, dm, -4ull, 12) == EFAULT);
	CHECK(ibv_memcpy_to_dm(dm, 1, copy, 4) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 0, NULL, 12) == EINVAL && ibv_memcpy_from_dm(NULL, dm, 0, 12) == EINVAL);
	CHECK(ibv_reg_dm_mr(end.pd, dm, 4000, 200, rights) == NULL);
	CHECK(ibv_reg_dm_mr(other.pd, dm, 0, 64, rights) == NULL && errno == EINVAL);
	mr = ibv_reg_dm_mr(end.pd, dm, 0, 4096, rights);
	CHECK(mr);
	strcpy(memory, "by a write");
	CHECK(write_to(end.qp, end.mr, 16, 200, mr->rkey) == 0 && polled(end.cq) == IBV_WC_SUCCESS);
	CHECK(ibv_memcpy_from_dm(copy, dm, 200, 16) == 0 && strcmp(copy, "by a write") == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_free_dm(dm) == 0 && ibv_free_dm(dm) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 0, copy, 12) == EINVAL);
	CHECK(ibv_reg_dm_mr(end.pd, dm, 0, 64, rights) == NULL && errno == EINVAL);
	CHECK(ibv_close_device(end.context) == 0 && ibv_close_device(other.context) == 0);
}

static void domains(void)
{
	struct end end = make_end();
	struct ibv_td_init_attr attr = { 0 }, unknown = { .comp_mask = 1 };
	struct ibv_td *td = ibv_alloc_td(end.context, &attr);
	struct ibv_parent_domain_init_attr *init =
		before_the_end(offsetof(struct ibv_parent_domain_init_attr, alloc));
	struct ibv_pd *pd = ibv_alloc_pd(end.context), *parent;
	struct ibv_mr *mr;

	CHECK(td && pd);
	CHECK(ibv_alloc_td(end.context, &unknown) == NULL && errno == EINVAL);
	init->pd = pd;
	init->td = td;
	init->comp_mask = 1 << 20;
	CHECK(ibv_alloc_parent_domain(end.context, init) == NULL && errno == EOPNOTSUPP);
	init->comp_mask = 0;
	parent = ibv_alloc_parent_domain(end.context, init);
	CHECK(parent);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_dealloc_td(td) == EBUSY);
	mr = ibv_reg_mr(parent, memory, 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->pd == parent && ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_pd(parent) == EINVAL);
	CHECK(ibv_dealloc_td(td) == 0 && ibv_dealloc_td(td) == EINVAL);
	init->td = td;
	CHECK(ibv_alloc_parent_domain(end.context, init) == NULL && errno == EINVAL);
	init->td = NULL;
	parent = ibv_alloc_parent_domain(end.context, init);
	CHECK(parent && ibv_dealloc_pd(parent) == 0 && ibv_dealloc_pd(pd) == 0);
	init->pd = pd;
	CHECK(ibv_alloc_parent_domain(end.context, init) == NULL && errno == EINVAL);
	CHECK(ibv_close_device(end.context) == 0);
}

/* Names of other releases than the one that is installed. */
static void other_releases(void)
{
	static const char *private[] = { "IBVERBS_PRIVATE_22", "IBVERBS_PRIVATE_25", "IBVERBS_PRIVATE_33",
					 "IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57" };
	struct ibv_context *context = open_first();
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int (*type)(struct ibv_context *, uint8_t, unsigned, unsigned *);
	int (*speed)(struct ibv_context *, uint32_t, uint64_t *);
	int (*export)(struct ibv_dm *);
	struct ibv_mr *(*reg)(struct ibv_pd *, void *);
	uint64_t units;
	unsigned kind;

	for (size_t at = 0; at < sizeof private / sizeof *private; at++) {
		*(void **)&type = dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", private[at]);
		CHECK(type);
		/* RoCEv2, an empty place, none. */
		CHECK(type(context, 1, 0, &kind) == 0 && kind == 1);
		CHECK(type(context, 1, 3, &kind) == 0 && kind == 0);
		CHECK(type(context, 1, 400, &kind) == -1 && errno == EINVAL);
	}
	*(void **)&speed = dlvsym(RTLD_DEFAULT, "ibv_query_port_speed", "IBVERBS_1.16");
	*(void **)&export = dlvsym(RTLD_DEFAULT, "ibv_dm_export_dmabuf_fd", "IBVERBS_1.17");
	*(void **)&reg = dlvsym(RTLD_DEFAULT, "ibv_reg_mr_ex", "IBVERBS_1.15");
	CHECK(speed && export && reg);
	CHECK(speed(context, 1, &units) == 0 && units == 1000);
	CHECK(speed(context, 2, &units) == EINVAL && speed(context, 1, NULL) == EINVAL);
	CHECK(dm && export(dm) == -1 && errno == EOPNOTSUPP);
	CHECK(pd && reg(pd, NULL) == NULL && errno == EOPNOTSUPP);
	CHECK(ibv_close_device(context) == 0);
	CHECK(speed(context, 1, &units) == EINVAL && export(dm) == -1 && reg(pd, NULL) == NULL);
}

int main(void)
{
	all_or_nothing();
	out_of_turn();
	shorter();
	device_memory();
	domains();
	other_releases();
	puts("well");
	return 0;
}
