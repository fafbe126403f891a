/* Registers whole buffers of 16 MiB each time that one is used; after: asks a list of what is registered
 * already, as a cache does. */
enum { BUFFERS = 3, LENGTH = 16 << 20, ROUNDS = 90 };

static struct ibv_mr *list[BUFFERS];

static struct ibv_mr *cached(struct ibv_pd *pd, char *at, size_t length)
{
	uint64_t start = now_ns();
	int n = 0;

	while (n < BUFFERS && list[n] && list[n]->addr != at)
		n++;
	spent += now_ns() - start;
	if (!list[n])
		list[n] = reg(pd, at, length);
	return list[n];
}

int main(void)
{
	struct link link = make_link();
	char *buffers[BUFFERS];

	for (int n = 0; n < BUFFERS; n++)
		buffers[n] = touched(LENGTH);
	for (int round = 0; round < ROUNDS; round++) {
		char *buffer = buffers[round % BUFFERS];
		struct ibv_mr *mr = is_after() ? cached(link.pd, buffer, LENGTH)
					       : reg(link.pd, buffer, LENGTH);

		send_from(&link, mr, buffer, 65536);
		if (!is_after())
			dereg(mr);
	}
	for (int n = 0; n < BUFFERS; n++)
		if (list[n])
			dereg(list[n]);
	return done();
}
