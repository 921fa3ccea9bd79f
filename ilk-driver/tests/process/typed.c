// A program whose functions take what scripts name: it prints, for each name, the sum of what a script should add up.

#include <stdio.h>
#include <string.h>

#define CALLS 3000

enum colour { RED = 1, GREEN = 5, BLUE = -2 };

// Defined in another unit.
struct node;

typedef struct {
	int first, second;
} pair;

struct request {
	struct node *next;
	const volatile unsigned int length;
	unsigned low : 3;
	int middle : 7;
	unsigned long high : 40;
	enum colour colour;
	union {
		int number;
		struct {
			unsigned char small, large;
		};
	};
	struct {
		short x, y;
	} places[4];
	unsigned char grid[2][3];
	char name[12];
	const char *title;
	pair both;
};

struct node *node_of(long weight);
long weight_of(const struct node *node);

static long sums[32];

__attribute__((noipa)) long handle(struct request *request, int amount, double ratio, const pair *both, long fourth,
				   long fifth, unsigned char sixth, short stacked, const char *last)
{
	sums[0] += ratio > 0;
	return request->length + amount + both->first + fourth + fifth + sixth + stacked + last[0];
}

__attribute__((noipa)) int touch(void *opaque, struct node *node)
{
	return opaque != NULL && node != NULL ? -1 : 1;
}

__attribute__((noipa)) static int unused(int first, int second)
{
	(void)first;
	return second * 2;
}

static void expect(const char *name, long value)
{
	printf("expected %s %ld\n", name, value);
}

int main(void)
{
	static struct node *nodes[3];
	long total[24] = {0}, results = 0, touched = 0, named = 0;

	for (int i = 0; i < 3; i++)
		nodes[i] = node_of(100 + i);
	for (int i = 0; i < CALLS; i++) {
		struct request request = {
			.next = i % 4 == 3 ? NULL : nodes[i % 3],
			.length = 1000000000u + i,
			.low = i,
			.middle = (i % 100) - 50,
			.high = (1ul << 38) + i,
			.colour = i % 3 == 0 ? RED : i % 3 == 1 ? GREEN : BLUE,
			.title = i % 2 ? "odd" : "even",
			.both = {i, -i},
		};
		pair both = {i * 2, i * 3};

		request.small = i;
		request.large = i + 7;
		request.places[2].y = -i;
		request.grid[1][2] = i + 1;
		strcpy(request.name, i % 5 ? "other" : "fifth");
		total[0] += request.length;
		total[1] += request.low;
		total[2] += request.middle;
		total[3] += request.high;
		total[4] += request.colour;
		total[5] += request.large;
		total[6] += request.places[2].y;
		total[7] += request.grid[1][2];
		total[8] += request.title[0];
		total[9] += request.both.second;
		total[10] += request.next ? weight_of(request.next) : 0;
		total[11] += request.next == NULL;
		total[12] += i - 5;
		total[13] += both.first;
		total[14] += -i;
		total[15] += i * 7l;
		total[16] += (unsigned char)i;
		total[17] += (short)-i;
		named += i % 5 == 0;
		results += handle(&request, i - 5, 0.5, &both, -i, i * 7l, i, -i, request.title);
		touched += touch(&request, request.next);
		results += unused(i, i);
	}
	static const char *const names[] = {
		"length", "low", "middle", "high", "colour", "large", "places", "grid", "title", "second",
		"weight", "none", "amount", "both", "fourth", "fifth", "sixth", "stacked",
	};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		expect(names[i], total[i]);
	expect("named", named);
	expect("touched", touched);
	return results == 0;
}
