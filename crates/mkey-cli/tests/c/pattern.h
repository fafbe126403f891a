/* A connection to itself, and registrations whose time is taken. With AFTER set in the environment a
 * program does what it does by the other way. */
#include <time.h>

static uint64_t spent;

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline struct ibv_mr *reg(struct ibv_pd *pd, void *at, size_t length)
{
	uint64_t start = now_ns();
	struct ibv_mr *mr = ibv_reg_mr(pd, at, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	spent += now_ns() - start;
	CHECK(mr);
	return mr;
}

static inline void dereg(struct ibv_mr *mr)
{
	uint64_t start = now_ns();

	CHECK(ibv_dereg_mr(mr) == 0);
	spent += now_ns() - start;
}

static inline char *touched(size_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	CHECK(madvise(memory, length, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	memset(memory, 1, length);
	return memory;
}

struct link {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *from, *to;
	struct ibv_mr *target;
};

static inline struct link make_link(void)
{
	struct link link = { .context = open_first() };

	CHECK((link.pd = ibv_alloc_pd(link.context)));
	CHECK((link.cq = ibv_create_cq(link.context, 64, NULL, NULL, 0)));
	link.from = make_qp(link.pd, link.cq);
	link.to = make_qp(link.pd, link.cq);
	connect_to(link.from, link.to->qp_num);
	connect_to(link.to, link.from->qp_num);
	/* Its registration is no part of the pattern. */
	CHECK((link.target = ibv_reg_mr(link.pd, touched(65536), 65536,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	return link;
}

static inline void send_from(struct link *link, struct ibv_mr *mr, char *at, uint32_t length)
{
	struct ibv_sge entry = { (uintptr_t)at, length, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)link->target->addr;
	wr.wr.rdma.rkey = link->target->rkey;
	CHECK(ibv_post_send(link->from, &wr, &bad) == 0);
	CHECK(polled(link->cq) == IBV_WC_SUCCESS);
}

static inline int is_after(void)
{
	return getenv("AFTER") != NULL;
}

static inline int done(void)
{
	printf("%llu\n", (unsigned long long)spent);
	return 0;
}
