// refork: n=400 m=3 text=n:in:index:3 word=m:in:index:3
int first_match(int n, int m, const char *text, const char *word) {
    for (int i = 0; i + m <= n; i++) {
        int j = 0;
        while (j < m && text[i + j] == word[j]) j++;
        if (j == m) return i;
    }
    return -1;
}
