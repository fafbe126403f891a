/* Registers each of many small buffers, which are all in use at a time, in a few rounds; after: they are
 * parts of one region. */
enum { BUFFERS = 2048, LENGTH = 4096, ROUNDS = 3 };

int main(void)
{
	struct link link = make_link();
	static char *buffers[BUFFERS];
	static struct ibv_mr *mrs[BUFFERS];
	/* Buffers that lie apart, or in one piece. */
	char *region = touched((size_t)BUFFERS * LENGTH * 2);
	struct ibv_mr *one = is_after() ? reg(link.pd, region, (size_t)BUFFERS * LENGTH) : NULL;

	for (int n = 0; n < BUFFERS; n++)
		buffers[n] = region + (size_t)n * LENGTH * (one ? 1 : 2);
	for (int round = 0; round < ROUNDS; round++) {
		for (int n = 0; n < BUFFERS; n++)
			mrs[n] = one ? one : reg(link.pd, buffers[n], LENGTH);
		for (int n = 0; n < BUFFERS; n++)
			send_from(&link, mrs[n], buffers[n], LENGTH);
		for (int n = 0; n < BUFFERS && !one; n++)
			dereg(mrs[n]);
	}
	if (one)
		dereg(one);
	return done();
}
