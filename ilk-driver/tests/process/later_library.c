// A library whose function is called by its constructor, its destructor, and a function that chooses one when it is linked.
extern unsigned long calls[2], sums[2], loads[2];

static const unsigned own = 11;
static volatile unsigned seen;

__attribute__((noipa)) unsigned work(const unsigned *number)
{
	unsigned x = *number;
	if (x % 5) {
		seen = x;
		return x * FACTOR + 1;
	}
	return (x + 1) * FACTOR - (FACTOR - 1);
}

static void count(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		work(&own);
	__atomic_fetch_add(&calls[NUMBER], times, __ATOMIC_RELAXED);
	__atomic_fetch_add(&sums[NUMBER], times * own, __ATOMIC_RELAXED);
}

static unsigned chosen_function(void)
{
	return 1;
}

__attribute__((noipa)) static void *choose(void)
{
	return chosen_function;
}

unsigned chosen(void) __attribute__((ifunc("choose")));

__attribute__((constructor)) static void loaded(void)
{
	count(2 + chosen());
	__atomic_fetch_add(&loads[NUMBER], 1, __ATOMIC_RELAXED);
}

__attribute__((destructor)) static void unloaded(void)
{
	count(1);
}
