// refork: n=500 out=n:out seed=:scalar:positive
void generator(int n, unsigned seed, unsigned *out) {
    do {
        if (n <= 0) break;
        seed = seed * 1664525u + 1013904223u;
        *out++ = seed;
    } while (--n);
}
