// A library that calls its own function as soon as it is loaded, and when it is unloaded.
extern unsigned long calls, loads;

static volatile unsigned seen;

__attribute__((noipa)) unsigned work(unsigned x)
{
	if (x % 5) {
		seen = x;
		return x * 7 + 3;
	}
	return x / 5;
}

__attribute__((constructor)) static void loaded(void)
{
	for (unsigned x = 0; x < 3; x++)
		work(x);
	__atomic_fetch_add(&calls, 3, __ATOMIC_RELAXED);
	__atomic_fetch_add(&loads, 1, __ATOMIC_RELAXED);
}

__attribute__((destructor)) static void unloaded(void)
{
	work(4);
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
}
