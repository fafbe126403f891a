/* Gives memory back that is registered, or was before it was registered anew. */
int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int access = IBV_ACCESS_LOCAL_WRITE | (getenv("ODP") ? IBV_ACCESS_ON_DEMAND : 0);
	char *old = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *new = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, old, 8192, access);

	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, new, 4096, 0) == 0);
	/* Not registered any more. */
	CHECK(munmap(old, 8192) == 0);
	/* Its first half is. */
	CHECK(munmap(new, 8192) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
