/* Each mistake with the life of memory and keys once, each with a region of its own. */

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static char memory[1 << 16] __attribute__((aligned(4096)));

static struct ibv_mr *reg(void *at, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, length, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	return mr;
}

static int receive(uint32_t lkey, void *at, uint32_t length)
{
	struct ibv_sge entry = { (uintptr_t)at, length, lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &entry, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static void *pages(size_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	memset(at, 1, length);
	return at;
}

int main(void)
{
	struct ibv_mr *mr, *kept;
	uint32_t key;
	char *block, *mapped;

	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	qp = make_qp(pd, cq);
	CHECK(pd && cq);

	/* 1: deregistered while a receive is in flight; and its key used afterwards. */
	mr = reg(memory, 4096);
	CHECK(receive(mr->lkey, memory, 64) == 0);
	key = mr->lkey;
	CHECK(ibv_dereg_mr(mr) == 0);
	receive(key, memory, 64);

	/* 2: received into twice. */
	mr = reg(memory + 4096, 4096);
	CHECK(receive(mr->lkey, memory + 4096, 64) == 0);
	CHECK(receive(mr->lkey, memory + 4096, 64) == 0);

	/* 3: beyond the end. */
	mr = reg(memory + 8192, 4096);
	receive(mr->lkey, memory + 8192 + 4000, 200);

	/* 4: freed while registered, a small block and a large one; one that moves; one that is well. */
	for (int at = 0; at < 2; at++) {
		size_t length = at ? 1 << 20 : 4096;

		block = malloc(length);
		CHECK(block);
		memset(block, 1, length);
		mr = reg(block, length);
		free(block);
		CHECK(ibv_dereg_mr(mr) == 0);
	}
	block = malloc(1 << 16);
	CHECK(block);
	mr = reg(block, 1 << 16);
	CHECK(malloc(64));
	block = realloc(block, 1 << 22);
	CHECK(block && block != mr->addr);
	CHECK(ibv_dereg_mr(mr) == 0);
	mr = reg(block, 4096);
	CHECK(ibv_dereg_mr(mr) == 0);
	free(block);

	/* 5: unmapped, mapped anew, discarded, moved while registered. */
	mapped = pages(8192);
	kept = reg(mapped, 8192);
	CHECK(munmap(mapped, 4096) == 0);
	CHECK(ibv_dereg_mr(kept) == 0);
	mapped = pages(4096);
	kept = reg(mapped, 4096);
	CHECK(mmap(mapped, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mapped);
	CHECK(ibv_dereg_mr(kept) == 0);
	mapped = pages(4096);
	kept = reg(mapped, 4096);
	CHECK(madvise(mapped, 4096, MADV_DONTNEED) == 0);
	CHECK(madvise(mapped, 4096, MADV_NORMAL) == 0);
	CHECK(ibv_dereg_mr(kept) == 0);
	mapped = pages(4096);
	kept = reg(mapped, 4096);
	CHECK(mremap(mapped, 4096, 1 << 20, MREMAP_MAYMOVE) != MAP_FAILED);
	CHECK(ibv_dereg_mr(kept) == 0);

	/* 6: unmapped while a receive is in flight. */
	mapped = pages(4096);
	kept = reg(mapped, 4096);
	CHECK(receive(kept->lkey, mapped, 64) == 0);
	CHECK(munmap(mapped, 4096) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_dereg_mr(kept) == 0);

	/* On-demand memory may go. */
	mapped = pages(4096);
	kept = ibv_reg_mr(pd, mapped, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK(munmap(mapped, 4096) == 0);
	if (kept)
		CHECK(ibv_dereg_mr(kept) == 0);
	puts("well");
	return 0;
}
